import { expect, it } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { itBillsWhatIsLeft } from './left-answers.ts';
import { bench, counters, expectExact } from './real-engine.ts';

const ask = (fields: object, options: object = {}): Promise<Response> =>
  bench.post('/v1/completions', { model: 'chat', temperature: 0, ...fields }, options);
const story = { prompt: 'Once upon a time', ignore_eos: true, max_tokens: 1500 };

/** `/v1/completions` of a real vLLM: what is billed is what its counters say. */
export function describeCompletions(): void {
  it("answers as JSON, and is billed by the engine's count", async () => {
    // Starts the engine, and has the prompt in its cache.
    expect((await ask({ ...story, max_tokens: 4 })).status).toBe(200);
    const before = await counters();
    const answer = await ask({ ...story, max_tokens: 16 });
    const body: Body = await answer.json();
    expect(body.usage.completion_tokens).toBe(16);
    await expectExact(await bench.recordOf(answer), before, 'completed');
  });

  itBillsWhatIsLeft({ tell: (fields, options) => ask({ ...story, ...fields }, options), delta: '"text":' });
}
