import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { type Body, errorOf, externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { enoughOfTheHour, reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';

const engine = createServer((request, answer) => {
  const json = { 'content-type': 'application/json' };
  request.resume().on('end', () => answer.writeHead(404, json).end('{"detail":"Not Found"}'));
});
afterAll(() => engine.close());
const bench = useInference(async () => {
  await enoughOfTheHour();
  await once(engine.listen(0, '127.0.0.1'), 'listening');
  return { engines: { chat: externalFile('chat', `http://127.0.0.1:${(engine.address() as AddressInfo).port}`) } };
});

it('a request to a route that the engine does not have explains nothing', async () => {
  const error = await errorOf(await bench.post('/v1/responses', { model: 'chat', input: 'Hi' }));
  expect(error).toMatchObject({ status: 501, code: 'not_implemented' });
  const found = await reconcileAtRest(bench);
  expect(found.data).toHaveLength(1);
  const [line]: Body[] = found.data;
  expect(line).toMatchObject({ usage: { requests: 1 }, state: 'balanced', explanations: [] });
});
