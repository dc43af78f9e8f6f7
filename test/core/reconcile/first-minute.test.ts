import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { type Body, eventually, externalFile, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { enoughOfTheHour, reconcile } from '#test/reconcile/mixed-traffic.ts';

const counted = { prompt: 7, made: 5, showsCounters: false };

const engine = createServer((request, answer) => {
  request.resume().on('end', () => {
    const { prompt, made, showsCounters } = counted;
    if (request.url === '/metrics' && !showsCounters) return void answer.writeHead(503).end();
    if (request.url === '/metrics') {
      return void answer.end(`vllm:prompt_tokens_total ${prompt}\nvllm:generation_tokens_total ${made}\n`);
    }
    answer.setHeader('content-type', 'application/json');
    if (request.method !== 'POST') return void answer.end('{"data":[]}');
    counted.prompt += 10;
    counted.made += 5;
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const choices = [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }];
    answer.end(JSON.stringify({ model: 'far', choices, usage }));
  });
});
afterAll(() => engine.close());
const bench = useInference(async () => {
  await enoughOfTheHour();
  await once(engine.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
  return { engines: { far: externalFile('far', url), chat: standinFile('chat') } };
});

const askBoth = async (): Promise<void> => {
  for (const model of ['far', 'chat']) expect((await bench.chat({ model })).status).toBe(200);
};

const statesOf = ({ data }: Body): readonly string[] => data.map(({ model, problem }: Body) => `${model} ${problem}`);

it('the comparison explains everything from the first seconds of a gateway', async () => {
  await askBoth();
  const first = await reconcile(bench);
  expect(statesOf(first)).toEqual(['chat null', 'far null']);
  const chat = first.data.find(({ model }: Body) => model === 'chat');
  expect(chat.explanations.map(({ kind }: Body) => kind)).toContain('probe');
  expect(chat.difference).toMatchObject({ prompt_tokens: 0, completion_tokens: 0 });
});

it('the comparison explains what an external engine counted before its first reading', async () => {
  counted.showsCounters = true;
  const found = await eventually(async () => {
    await askBoth();
    const now = await reconcile(bench);
    expect(statesOf(now)).toEqual(['chat null', 'far null']);
    const far = now.data.find(({ model }: Body) => model === 'far');
    return far.engines === null ? null : far;
  });
  expect(found.explanations.map(({ kind }: Body) => kind)).toContain('replica_found');
});
