import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  externalFile,
  framesOf,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';

/** Holds of a stream while Redis is asked for more of them. */

let redis: TestRedis;
let engine: Server;
let gateway: TestGateway;
let tokens = 0;
beforeAll(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  engine = createServer((incoming, answer) => {
    incoming.resume();
    incoming.on('end', () => {
      answer.writeHead(200, { 'content-type': 'text/event-stream' });
      answer.end(wholeStream(tokens));
    });
  });
  await new Promise<void>((resolve) => engine.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
  const enginesDir = writeEngines({ whole: externalFile('whole', url), chat: standinFile('chat') });
  gateway = await startGateway({ redisUrl: redis.url, enginesDir });
});
afterAll(async () => {
  await gateway.stop();
  await redis.stop();
  engine.close();
});

const day = 86_400_000;
const outputPicoUsd = 400_000n;

/** All of an answer as one piece, its end with it. */
function wholeStream(completionTokens: number): string {
  const head = { id: 'c', object: 'chat.completion.chunk', created: Math.floor(Date.now() / day), model: 'whole' };
  const usage = { prompt_tokens: 5, completion_tokens: completionTokens, total_tokens: 5 + completionTokens };
  const delta = { role: 'assistant', content: 'word '.repeat(completionTokens) };
  const frames = [
    { ...head, choices: [{ index: 0, delta, finish_reason: null }], usage },
    { ...head, choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage },
    { ...head, choices: [], usage },
  ];
  return `${frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join('')}data: [DONE]\n\n`;
}

let owner: { key: string };
beforeEach(async () => {
  owner = await openOrganization(gateway, '1');
});

const ask = (fields: object): Promise<Response> =>
  gateway.request(chatPath, { body: chatBody({ stream: true, ...fields }), key: owner.key });

async function recordOf(answer: Response): Promise<Body> {
  const id = answer.headers.get('x-request-id') ?? '';
  return eventually(async () => {
    const found = await gateway.request(`/v1/usage/requests/${id}`, { key: owner.key });
    return found.status === 200 ? found.json() : null;
  });
}

it.each([600, 4000])('charges all %i tokens of an answer that arrives together with its end', async (count) => {
  tokens = count;
  const answer = await ask({ model: 'whole', max_tokens: count });
  expect(framesOf(await answer.text()).at(-1)).toBe('[DONE]');
  const record = await recordOf(answer);
  expect(record).toMatchObject({ outcome: 'completed', output_tokens: count });
  const picoUsd = 5n * 100_000n + BigInt(count) * outputPicoUsd;
  expect(BigInt(Math.round(Number(record.cost) * 1e12))).toBe(picoUsd);
  const left = await eventually(async () => {
    const wallet: Body = await (await gateway.request('/v1/wallet', { key: owner.key })).json();
    return wallet.held === '0' ? wallet : null;
  });
  expect(BigInt(Math.round(Number(left.balance) * 1e12))).toBe(10n ** 12n - picoUsd);
});

it('continues a stream that needs more while Redis is frozen, and charges all its tokens', async () => {
  const fields = { max_tokens: 1500, ignore_eos: true, standin: { ttft_ms: 1, tpot_ms: 1 } };
  await (await ask({ model: 'chat', max_tokens: 1 })).text();
  const answer = await ask({ model: 'chat', ...fields });
  const reader = answer.body?.getReader();
  await reader?.read();
  const pid = redis.pid ?? 0;
  process.kill(pid, 'SIGSTOP');
  try {
    let text = '';
    const decoder = new TextDecoder();
    for (;;) {
      const piece = await reader?.read();
      if (piece === undefined || piece.done) break;
      text += decoder.decode(piece.value as Uint8Array);
    }
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect(text).not.toContain('"error"');
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  expect(await recordOf(answer)).toMatchObject({ outcome: 'completed', output_tokens: 1500, reason: null });
});
