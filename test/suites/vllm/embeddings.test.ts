import { expect, it } from 'vitest';
import { reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';
import { askEngine, type Body, errorOf, readMetric, useInference } from '#test/inference/inference-gateway.ts';
import { vllmFile } from '#test/inference/vllm-file.ts';

const flags = ['--runner', 'pooling', '--convert', 'embed'];
const file = { id: 'embed', taskType: 'embedding', maxSequences: 64, flags } as const;
const bench = useInference(() => ({ engines: { embed: vllmFile(file) } }));

const embed = (fields: object): Promise<Response> => bench.post('/v1/embeddings', { model: 'embed', ...fields });
const counted = (): Promise<number> => readMetric(bench.socketOf('embed'), 'vllm:prompt_tokens_total');

/** The same numbers, but for what their order in a batch changes of bfloat16. */
function expectAlike(a: readonly number[], b: readonly number[]): void {
  const dot = (one: readonly number[], other: readonly number[]) =>
    one.reduce((sum, value, at) => sum + value * (other[at] ?? 0), 0);
  expect(a).toHaveLength(b.length);
  expect(dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b))).toBeGreaterThan(0.999);
}

const floatsOf = (base64: string): number[] => {
  const bytes = Buffer.from(base64, 'base64');
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
};

/** Tokens of what no book has. */
let askedPast = 0;
const texts = Array.from({ length: 300 }, (_, index) => `text ${index}${' of a river'.repeat(index % 3)}`);

it("returns for many texts in parts the vectors of one request, and bills by the engine's count", async () => {
  await (await embed({ input: 'warm' })).text();
  const direct = await askEngine(bench.socketOf('embed'), '/v1/embeddings', { model: 'embed', input: texts });
  const whole: Body = JSON.parse(direct.text);
  askedPast = whole.usage.prompt_tokens;
  for (const format of ['float', 'base64']) {
    const before = await counted();
    const answer = await embed({ input: texts, encoding_format: format });
    const body: Body = await answer.json();
    expect(body).toMatchObject({ object: 'list', model: 'embed', usage: whole.usage });
    expect(body.id).toBe(`embd-${answer.headers.get('x-request-id')}`);
    expect(Object.keys(body)).toEqual(Object.keys(whole));
    expect(body.data.map(({ index }: Body) => index)).toEqual([...texts.keys()]);
    for (const [index, { embedding }] of body.data.entries()) {
      expectAlike(format === 'float' ? embedding : floatsOf(embedding), whole.data[index].embedding);
    }
    await expect.poll(counted).toBe(before + whole.usage.prompt_tokens);
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ input_tokens: whole.usage.prompt_tokens, usage_source: 'engine' });
  }
});

it('reconciles counters and ledger except for requests that bypassed the gateway', async () => {
  const found = await reconcileAtRest(bench);
  const differences = found.data.map(({ difference }: Body) => difference.prompt_tokens);
  expect(differences.reduce((sum: number, tokens: number) => sum + tokens, 0)).toBe(askedPast);
});

it.each([
  ['an empty text', texts.with(222, ''), 'input[222]', '"input[222]"'],
  ['a text that is too long', texts.with(222, 'far too long '.repeat(2000)), 'input[222]', '"input[222]"'],
  [
    'too many token ids',
    texts.map((_, at) => (at === 222 ? Array.from({ length: 2049 }, () => 9) : [at])),
    'input[222]',
    '"input[222]"',
  ],
  [
    'a token id that it does not have',
    texts.map((_, at) => (at === 222 ? [99_999_999] : [at])),
    'input',
    '"input[200]" to "input[299]"',
  ],
])('names the position of an invalid text: %s', async (_, input, param, says) => {
  const error = await errorOf(await embed({ input }));
  expect(error).toMatchObject({ status: 400, param });
  expect(error.message).toContain(says);
});

it('explains texts that were computed before the rejected request ended', async () => {
  const found = await reconcileAtRest(bench);
  const sumOf = (figure: 'difference' | 'unexplained'): number =>
    found.data.reduce((sum: number, line: Body) => sum + line[figure].prompt_tokens, 0);
  // Requests that went past the gateway hide in its possible work, or are unexplained.
  expect(sumOf('unexplained')).toBeLessThanOrEqual(askedPast);
  const kinds = found.data.flatMap(({ explanations }: Body) => explanations.map(({ kind }: Body) => kind));
  const isExplained = kinds.some((kind: string) => kind === 'uncounted' || kind === 'undelivered');
  // The engine may have rejected each invalid text before it computed any other.
  expect(isExplained || sumOf('difference') === askedPast).toBe(true);
});
