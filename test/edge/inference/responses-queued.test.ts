import { afterAll, expect, it } from 'vitest';
import { externalFile, useInference } from '#test/inference/inference-gateway.ts';
import { type ResponsesEngine, type Script, startResponsesEngine } from './responses-engine.ts';

/** vLLM says at once that it has taken a request for a response, which may then wait for its turn. */

let engines: readonly ResponsesEngine[] = [];
const bench = useInference(async () => {
  engines = [await startResponsesEngine(), await startResponsesEngine()];
  const [first, second] = engines.map(({ url }) => url);
  const lines = ['kind: vllm', `urls: [${first}, ${second}]`];
  return {
    engines: {
      one: externalFile('one', first ?? '', { lines: ['kind: vllm'] }),
      two: externalFile('two', '', { lines }).replace(/^url:.*\n/m, ''),
    },
    env: { HEADGATE_UPSTREAM_IDLE_SECONDS: '1' },
  };
});
afterAll(() => engines.forEach((engine) => engine.close()));

const ask = (model: string, script: Script): Promise<Response> =>
  bench.post('/v1/responses', { model, input: 'Hi', stream: true, script });

it("answers a stream that waits in the engine's queue longer than an answer may pause", async () => {
  const answer = await ask('one', { queuedMs: 4000 });
  expect(answer.status).toBe(200);
  expect(await answer.text()).toContain('response.completed');
  expect(await bench.recordOf(answer)).toMatchObject({
    outcome: 'completed',
    usage_source: 'engine',
    output_tokens: 3,
  });
});

it('answers from another replica when the engine fails while the stream is queued, and bills once', async () => {
  const answer = await ask('two', { cutFirst: 'a' });
  expect(answer.status).toBe(200);
  const text = await answer.text();
  expect(text.match(/event: response\.created/g)).toHaveLength(1);
  expect(text).toContain('response.completed');
  expect(await bench.recordOf(answer)).toMatchObject({
    outcome: 'completed',
    usage_source: 'engine',
    output_tokens: 3,
  });
  expect(engines.flatMap(({ bodies }) => bodies).filter((body) => body.includes('"cutFirst"'))).toHaveLength(2);
});
