import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { batchEnd, line, startBatch } from '#test/inference/batch-bench.ts';
import { useInference } from '#test/inference/inference-gateway.ts';

/** Batches of the models that come with the gateway. */

const folder = 'engines';
const shipped = readdirSync(folder).filter((name) => name.endsWith('.yaml'));
const engines = shipped.map((name) => [name.replace('.yaml', ''), readFileSync(join(folder, name), 'utf8')] as const);
const bench = useInference(() => ({ engines: Object.fromEntries(engines) }));

it.each(engines.map(([id]) => id))('runs a batch with the shipped engine file %s', async (model) => {
  const isEmbedding = model === 'standin-embed';
  const endpoint = isEmbedding ? '/v1/embeddings' : '/v1/chat/completions';
  const body = isEmbedding ? { model, input: 'Hello!', messages: undefined, max_tokens: undefined } : { model };
  const { id } = await startBatch(bench.gateway, line(0, { url: endpoint, body }), { endpoint });
  expect(await batchEnd(bench.gateway, id)).toMatchObject({
    status: 'completed',
    errors: null,
    request_counts: { total: 1, completed: 1, failed: 0 },
  });
});
