import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { dirname, join, normalize } from 'node:path';
import type { OpenAI } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { useBrowsers } from './browser.ts';

/** An app that has no server of its own calls the API from its page, with the official SDK. */

const browsers = useBrowsers();
const sdk = dirname(createRequire(import.meta.url).resolve('openai'));
const html =
  '<!doctype html><script type="module">import { OpenAI } from "/openai/index.mjs"; globalThis.OpenAI = OpenAI</script>';
let pages: Server;
let origin = '';
let gateway: TestGateway;
let closed: TestGateway;

beforeAll(async () => {
  pages = createServer(({ url = '/' }, outgoing) => {
    const isScript = url.startsWith('/openai/');
    outgoing.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    outgoing.end(isScript ? readFileSync(join(sdk, normalize(url.slice('/openai'.length)))) : html);
  });
  await new Promise<void>((resolve) => pages.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${(pages.address() as AddressInfo).port}`;
  const enginesDir = writeEngines({ chat: standinFile('chat') });
  gateway = await startGateway({ enginesDir, env: { HEADGATE_CORS_ORIGINS: origin } });
  closed = await startGateway({ enginesDir });
});
afterAll(async () => {
  await Promise.all([gateway.stop(), closed.stop()]);
  pages.close();
});

/** Runs in the page. */
async function useSdk({ url, apiKey }: { url: string; apiKey: string }): Promise<object> {
  const { OpenAI: Client } = globalThis as unknown as { OpenAI: typeof OpenAI };
  const client = new Client({ baseURL: `${url}/v1`, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'hi' }];
  try {
    const { response } = await client.chat.completions.create({ model: 'chat', messages }).withResponse();
    const stream = await client.chat.completions.create({ model: 'chat', messages, stream: true });
    let chunks = 0;
    for await (const chunk of stream) chunks += chunk.choices.length;
    const refused = await client.chat.completions.create({ model: 'none', messages }).catch((error: unknown) => error);
    return { requestId: response.headers.get('x-request-id'), chunks, code: (refused as { code?: string }).code };
  } catch (error) {
    return { failed: String(error) };
  }
}

it('reaches the gateway from a configured origin, and from no other', async () => {
  const { page } = await browsers.open();
  // On a busy machine one of the SDK's many files may come too late for the browser: nothing of the page runs then.
  await expect
    .poll(async () => {
      await page.goto(origin);
      return page.evaluate(() => 'OpenAI' in globalThis);
    })
    .toBe(true);
  const found = await page.evaluate(useSdk, { url: gateway.url, apiKey: gateway.key });
  expect(found).toMatchObject({ requestId: expect.stringMatching(/^[0-9a-f-]{36}$/), code: 'model_not_found' });
  expect((found as { chunks: number }).chunks).toBeGreaterThan(1);
  expect(await page.evaluate(useSdk, { url: closed.url, apiKey: closed.key })).toEqual({
    failed: 'Error: Connection error.',
  });
});
