import { expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** POST /v1/responses to the engines that answer out of the box. */

const path = '/v1/responses';
const bench = useInference(() => ({ engines: { standin: standinFile('standin') } }));

/** The last event of a stream. */
function lastOf(text: string): Body {
  return JSON.parse(text.split('\ndata: ').at(-1) ?? '');
}

it.each([true, false])('answers with a stand-in, billed by its count; as a stream: %s', async (stream) => {
  const answer = await bench.post(path, { model: 'standin', input: 'Hi', max_output_tokens: 4, stream });
  expect(answer.status).toBe(200);
  const text = await answer.text();
  const last: Body = stream ? lastOf(text) : { type: 'response.incomplete', response: JSON.parse(text) };
  const { id, status, usage } = last.response;
  expect([last.type, id, status]).toEqual([
    'response.incomplete',
    `resp_${answer.headers.get('x-request-id')}`,
    'incomplete',
  ]);
  // vLLM also sends lists of tokens per turn, for which OpenAI's Agents SDK throws.
  for (const name of ['input_tokens_details', 'output_tokens_details']) {
    expect(new Set(Object.values<unknown>(usage[name]).map((value) => typeof value))).toEqual(new Set(['number']));
  }
  expect(await bench.recordOf(answer)).toMatchObject({
    outcome: 'completed',
    usage_source: 'engine',
    input_tokens: usage.input_tokens,
    output_tokens: 4,
  });
});

it("bills a stand-in's stream whose client leaves by the engine's last count", async () => {
  const leaving = new AbortController();
  const body = { model: 'standin', input: 'Hi', stream: true, standin: { output_tokens: 4000, tpot_ms: 5 } };
  const answer = await bench.post(path, body, { signal: leaving.signal });
  await answer.body?.getReader().read();
  leaving.abort();
  const record = await bench.recordOf(answer);
  expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
  expect(record.output_tokens).toBeGreaterThan(0);
  expect(record.output_tokens).toBeLessThan(4000);
});
