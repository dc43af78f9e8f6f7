import { expect, it } from 'vitest';
import { reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';
import { type Body, readMetric, useInference } from '#test/inference/inference-gateway.ts';
import { vllmFile } from '#test/inference/vllm-file.ts';

/** A real vLLM that judges pairs: what two words of a chat model's vocabulary are worth behind them. */
const head = {
  architectures: ['LlamaForSequenceClassification'],
  classifier_from_token: ['0', '1'],
  method: 'from_2_way_softmax',
};
const flags = ['--runner', 'pooling', '--hf-overrides', JSON.stringify(head)];
const bench = useInference(() => ({ engines: { sorter: vllmFile({ id: 'sorter', taskType: 'rerank', flags }) } }));

const documents = ['the sea is deep', 'bread and butter', 'deep blue sea '.repeat(40)];
const counted = (): Promise<number> => readMetric(bench.socketOf('sorter'), 'vllm:prompt_tokens_total');

it.each<[string, string, object]>([
  ['/v1/rerank', 'a query', { query: 'deep sea', documents, top_n: 2 }],
  ['/v1/score', 'texts', { text_1: 'deep sea', text_2: documents }],
  ['/v1/score', 'queries', { queries: 'deep sea', documents }],
])("bills %s by vLLM's count, for %s", async (path, _, fields) => {
  // The first starts it, and all have the pairs in its cache.
  expect((await bench.post(path, { model: 'sorter', ...fields })).status).toBe(200);
  const before = await counted();
  const answer = await bench.post(path, { model: 'sorter', ...fields });
  const body: Body = await answer.json();
  expect((body.results ?? body.data).length).toBe(path === '/v1/rerank' ? 2 : documents.length);
  await expect.poll(counted).toBe(before + body.usage.prompt_tokens);
  const record = await bench.recordOf(answer);
  expect(record).toMatchObject({
    endpoint: path,
    outcome: 'completed',
    usage_source: 'engine',
    input_tokens: body.usage.prompt_tokens,
    output_tokens: 0,
  });
  expect(Number(record.cost)).toBeGreaterThan(0);
});

it('reconciles rerank counters and ledger without a difference', async () => {
  const found = await reconcileAtRest(bench);
  const differences = found.data.map(({ difference }: Body) => difference.prompt_tokens);
  expect(differences.reduce((sum: number, tokens: number) => sum + tokens, 0)).toBe(0);
});
