import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterAll, describe, expect, it } from 'vitest';
import { errorOf, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** Somebody else's servers, one for each first part of a path, that say nothing to whoever asks for silence. */
const asked: string[] = [];
let server: Server | null = null;

async function startServers(): Promise<string> {
  const take = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const name = (incoming.url ?? '').split('/')[1] ?? '';
    const text = await readText(incoming);
    if (text.includes('silence')) return;
    if (incoming.method === 'POST') asked.push(name);
    const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
    const choices = [{ index: 0, message: { role: 'assistant', content: 'well' }, finish_reason: 'stop' }];
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 1, model: name, choices, usage }));
  };
  server = createServer((incoming, response) => void take(incoming, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
afterAll(() => {
  server?.close();
  server?.closeAllConnections();
});

/** A model with two replicas. */
const twice = (url: string, id: string, lines: readonly string[] = []): string =>
  externalFile(id, `${url}/${id}-one`, { lines }).replace(/url: .*/, `urls: [${url}/${id}-one, ${url}/${id}-two]`);

const bench = useInference(async () => {
  const url = await startServers();
  return {
    engines: { asked: twice(url, 'asked', ['fallbacks: [other]']), other: twice(url, 'other') },
    env: { HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '10' },
  };
});

const askFor = (model: string, content: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  bench.chat({ model, messages: [{ role: 'user', content }] }, { headers });
const many = <Result>(work: (at: number) => Promise<Result>): Promise<Result[]> =>
  Promise.all(Array.from({ length: 16 }, (_, at) => work(at)));

describe('requests that fail on a model and on its fallback', () => {
  it('exclude no replica of the fallback, since the request may be the cause', async () => {
    const headers = { 'x-headgate-allow-fallback': 'true' };
    const answers = await many((at) => askFor('asked', `silence ${at}`, headers));
    for (const answer of answers) expect(await errorOf(answer)).toMatchObject({ status: 504, code: 'upstream_error' });
    asked.length = 0;
    await many(async (at) => {
      expect((await askFor('other', `${at} word`)).status).toBe(200);
    });
    expect(new Set(asked)).toEqual(new Set(['other-one', 'other-two']));
  });

  it('exclude a replica of a model that was requested directly', async () => {
    await many((at) => askFor('other', `silence ${at}`));
    asked.length = 0;
    for (let at = 0; at < 4; at += 1) await (await askFor('other', `${at} more`)).text();
    expect(new Set(asked).size).toBe(1);
  });
});
