import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Person, signIn, useBrowsers } from './browser.ts';
import { playgroundOf } from './playground-page.ts';

const run = promisify(execFile);
const repository = new URL('../../../', import.meta.url).pathname;
const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let folder = '';

beforeAll(async () => {
  folder = writeEngines({
    other: standinFile('other', { flags: ['--output-tokens', '9'] }),
    slow: standinFile('slow', { flags: ['--tpot-ms', '60', '--output-tokens', '2000'] }),
    embed: standinFile('embed', { taskType: 'embedding' }),
  });
  gateway = await startGateway({ enginesDir: folder });
  person = await browsers.open();
  await person.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const { open, ask, answers, ended } = playgroundOf(() => [person, gateway]);

/** Answers the page's next requests with these events. Each arrives when the page has drawn the one before. */
async function answerWith(...events: unknown[]): Promise<void> {
  const texts = events.map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`);
  await person.page.evaluate(`{
    globalThis.fetchOfPage ??= globalThis.fetch;
    globalThis.fetch = (url, options) => {
      if (options?.method !== 'POST') return fetchOfPage(url, options);
      const events = ${JSON.stringify(texts)};
      const pull = async (stream) => {
        const event = events.shift();
        if (event === undefined) return stream.close();
        await new Promise((resolve) => setTimeout(resolve, 200));
        stream.enqueue(new TextEncoder().encode(event));
      };
      return Promise.resolve(new Response(new ReadableStream({ pull }), { headers: { 'x-request-id': 'one' } }));
    };
  }`);
}

/** Sends requests to the gateway again. */
const answerAsGateway = () => person.page.evaluate('globalThis.fetch = globalThis.fetchOfPage');
const said = (content: string) => ({ choices: [{ delta: { content } }] });
const called = (call: object) => ({ choices: [{ delta: { tool_calls: [call] } }] });
const text = () => answers().locator('.answer-text');

async function choose(protocol: string): Promise<void> {
  await person.page.locator('#settings:not([open]) > summary').click();
  await person.page.getByLabel('Protocol').selectOption(protocol);
}

async function sentTo(path: string, message: string): Promise<Record<string, unknown>> {
  const request = person.page.waitForRequest(`**/portal/playground/${path}`);
  await ask(message);
  return (await request).postDataJSON() as Record<string, unknown>;
}

describe('the text of an answer', () => {
  it('has the links of definitions that grew after they were shown', async () => {
    await open('other');
    await answerWith(said('[docs][a]\n\n[a]: https://example.com/do'), said('cs/page'), '[DONE]');
    await ask('Docs?');
    await ended('complete').waitFor();
    expect(await text().locator('a').getAttribute('href')).toBe('https://example.com/docs/page');
  });

  it('is whole after doubled carriage returns, and with code in languages that objects have as names', async () => {
    await open('other');
    const code = ['__proto__', 'constructor', 'extend'].map((name) => `\`\`\`${name}\n${name}\n\`\`\``).join('\n');
    await answerWith(said('x\r\r\nhello'), said(` world\0\u0007\n\n${code}\n\`\`\`js\nlet a`), '[DONE]');
    await ask('Hello');
    await ended('complete').waitFor();
    await text().locator('.code-keyword').waitFor();
    expect(await text().locator('p').allTextContents()).toEqual(['x', 'hello world\uFFFD\u0007']);
    expect(await text().locator('pre').allTextContents()).toEqual([
      '__proto__\n',
      'constructor\n',
      'extend\n',
      'let a',
    ]);
    expect(person.complaints).toEqual([]);
  });

  it('shows a refusal, an empty answer, and the limit that cut an answer', async () => {
    await open('other');
    await answerWith({ choices: [{ delta: { refusal: 'I will not.' } }] }, '[DONE]');
    await ask('Please');
    await ended('complete').getByText('I will not.').waitFor();
    await open('other');
    await answerWith({ choices: [{ delta: { content: '' }, finish_reason: 'stop' }] }, '[DONE]');
    await ask('Please');
    await ended('complete').waitFor();
    expect(await answers().locator('.answer-state').textContent()).toBe('The model returned no text.');
    for (const protocol of ['', 'responses', 'messages']) {
      await open('other');
      await choose(protocol);
      await person.page.getByLabel('Max output tokens').fill('5');
      await ask('Please');
      await ended('complete').getByText('cut at the limit of output tokens').waitFor();
    }
  });

  it('fits a narrow window, whatever is in it', async () => {
    const { page } = person;
    await page.setViewportSize({ width: 360, height: 800 });
    await open('other');
    const table = [' a |', '-|', ' b |'].map((cell) => `|${cell.repeat(60)}`).join('\n');
    const call = called({ index: 0, id: 'a', function: { name: 'n'.repeat(500), arguments: '{}' } });
    await answerWith(said(`${'x'.repeat(5000)}\n\n# ${'y'.repeat(3000)}\n\n${table}`), call, '[DONE]');
    await ask('w'.repeat(3000));
    await ended('complete').waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
    await page.setViewportSize({ width: 1280, height: 800 });
  });
});

describe('a tool call in the playground', () => {
  it('is shown and answered with any index, and with an id that comes late', async () => {
    await open('other');
    const first = called({ index: 3_000_000_000, function: { name: 'sum', arguments: '{"a":' } });
    await answerWith(first, called({ index: 3_000_000_000, id: 'late', function: { arguments: '1}' } }), '[DONE]');
    await ask('Sum');
    await ended('complete').getByText('Your next message is sent as the result of this call.').waitFor();
    expect(await answers().locator('.tool-call').count()).toBe(1);
    expect(await answers().locator('.tool-calls').textContent()).not.toContain('undefined');
    await answerAsGateway();
    expect((await sentTo('chat', '2'))['messages']).toEqual([
      { role: 'user', content: 'Sum' },
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'late', type: 'function', function: { name: 'sum', arguments: '{"a":1}' } }],
      },
      { role: 'tool', tool_call_id: 'late', content: '2' },
    ]);
    await ended('complete').waitFor();
  });

  it('that ended early is not part of the next request', async () => {
    await open('other');
    const half = called({ index: 0, id: 'a', function: { name: 'sum', arguments: '{"a":' } });
    await answerWith(half, { error: { message: 'The engine stopped.' } }, '[DONE]');
    await ask('Sum');
    await ended('early').getByText('The engine stopped.').waitFor();
    expect(await answers().getByText('Your next message').count()).toBe(0);
    await answerAsGateway();
    expect(JSON.stringify(await sentTo('chat', 'Again'))).not.toContain('tool');
    await ended('complete').waitFor();
  });
});

describe('the numbers of an answer', () => {
  it.each(['', 'responses', 'messages'])('are left to the record after a stop with protocol "%s"', async (protocol) => {
    await open('slow');
    await choose(protocol);
    await ask('Talk');
    await expect.poll(async () => ((await text().textContent()) ?? '').length).toBeGreaterThan(20);
    await person.page.getByRole('button', { name: 'Stop' }).click();
    await ended('early').waitFor();
    expect(await answers().locator('.answer-numbers').textContent()).not.toMatch(/cost| out/);
    await answers()
      .getByRole('link', { name: /details/ })
      .waitFor();
  });

  it('have a link to the record of a refused request', async () => {
    const { page } = person;
    await open('other');
    await page.locator('#settings > summary').click();
    await page.getByLabel('Max output tokens').fill('-4');
    await ask('Hello');
    const link = ended('early').getByRole('link', { name: /details/ });
    const address = new URL((await link.getAttribute('href')) ?? '', gateway.url).href;
    await expect.poll(async () => (await page.request.get(address)).status()).toBe(200);
  });

  it('are replaced by the status if a proxy rejects the request', async () => {
    const { page } = person;
    await open('other');
    await page.route('**/portal/playground/chat', (route) => route.fulfill({ status: 502, body: '<html>' }));
    await ask('Hello');
    await ended('early').waitFor();
    expect(await answers().locator('.answer-state').textContent()).toBe('The gateway returned HTTP 502.');
    await page.unroute('**/portal/playground/chat');
  });

  it('are not read out while they change', async () => {
    await open('slow');
    await ask('Talk');
    await answers()
      .getByText(/\d+ out/)
      .waitFor();
    expect(await answers().locator('.answer-numbers').getAttribute('aria-live')).toBe('off');
    expect(await answers().locator('.answer-state').getAttribute('aria-live')).toBe('off');
    await person.page.getByRole('button', { name: 'Stop' }).click();
    await ended('early').waitFor();
    expect(await answers().locator('.answer-state').getAttribute('aria-live')).toBe('polite');
  });
});

describe('buttons of the playground', () => {
  it('leave the keyboard in the message after Send and Stop', async () => {
    const { page } = person;
    const focused = () => page.getByLabel('Message').evaluate((field) => field.matches(':focus'));
    await open('slow');
    await page.getByLabel('Message').fill('Talk');
    await page.getByRole('button', { name: 'Send' }).press('Enter');
    await answers()
      .getByText(/\d+ out/)
      .waitFor();
    expect(await focused()).toBe(true);
    await page.getByRole('button', { name: 'Stop' }).press('Enter');
    await ended('early').waitFor();
    expect(await focused()).toBe(true);
  });

  it('have their own label again after two clicks on "Copy answer"', async () => {
    await open('other');
    await ask('Hello');
    await ended('complete').waitFor();
    const button = answers().locator('.answer-actions button');
    await button.click();
    await answers().getByRole('button', { name: 'Copied' }).click();
    await expect.poll(() => button.textContent()).toBe('Copied');
    await expect.poll(() => button.textContent(), { timeout: 10_000 }).toBe('Copy answer');
  });
});

describe('code of the playground', () => {
  it('explains the setting that it cannot have', async () => {
    const { page } = person;
    await open('other');
    await page.locator('#settings > summary').click();
    await page.getByLabel('Temperature').fill('much');
    await page.getByText('Copy as code').click();
    await page.getByRole('alert').getByText('Temperature must be a number').waitFor();
    expect(person.complaints).toEqual([]);
  });

  it.each(['', 'responses', 'messages'])('runs with any text, and after a reload, with "%s"', async (protocol) => {
    const { page } = person;
    const odd = `'"\\ $HOME \`id\` !x ${'${y}'} \\n é 🜁\u2028 'EOF'\nTrue false null`;
    await open('other');
    await choose(protocol);
    await ask(odd);
    await ended('complete').waitFor();
    await page.reload();
    await page.getByText('Copy as code').click();
    const [curl = '', , javascript = ''] = await page.locator('#code-list pre').allTextContents();
    expect(JSON.stringify(JSON.parse(/-d '([\s\S]*)'$/.exec(curl.replaceAll(`'\\''`, "'"))?.[1] ?? ''))).toContain(
      JSON.stringify(odd),
    );
    const options = { cwd: repository, env: { PATH: process.env['PATH'], HEADGATE_API_KEY: gateway.key } };
    expect((await run('sh', ['-c', curl], options)).stdout).toMatch(/\[DONE\]|message_stop|response\.completed/);
    const node = await run(process.execPath, ['--input-type=module', '--eval', javascript], options);
    expect(node.stdout).not.toBe('');
  });
});

describe('embeddings of the playground', () => {
  it('compares the first 20 of many texts', async () => {
    const { page } = person;
    await open('embed#calls');
    await page.getByLabel('Texts').fill(Array.from({ length: 200 }, (_, at) => `text ${at}`).join('\n'));
    await page.getByRole('button', { name: 'Run request' }).click();
    const similar = page.getByRole('table', { name: 'Cosine similarity' });
    await similar.waitFor();
    expect(await similar.locator('tbody tr').count()).toBe(20);
    expect(await page.getByRole('table', { name: 'Vectors' }).locator('tbody tr').count()).toBe(200);
  });
});
