import { describe, expect, it } from 'vitest';
import { batchEnd, batchWhen, flexFile, linesOf, startBatch } from '#test/inference/batch-bench.ts';
import { openOrganization, useInference } from '#test/inference/inference-gateway.ts';

/** Lines of a batch have Idempotency-Keys, and whoever has made it may name other requests as they are named. */

const bench = useInference(() => ({ engines: { chat: flexFile('chat') } }));

const slowLines = (count: number): string =>
  linesOf(count, { body: { max_tokens: 400, standin: { output_tokens: 400, tpot_ms: 20 } } });

describe('a request whose Idempotency-Key looks like a batch line', () => {
  it('is charged, also when the batch is canceled while the request runs', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, slowLines(400), { key });
    await batchWhen(bench.gateway, id, ({ status }) => status === 'in_progress', key);
    const headers = { 'idempotency-key': `${id}/399` };
    const fields = { stream: true, max_tokens: 100, standin: { output_tokens: 100, tpot_ms: 40 } };
    const answer = await bench.chat(fields, { key, headers });
    expect(answer.status).toBe(200);
    const text = answer.text();
    await bench.post(`/v1/batches/${id}/cancel`, undefined, { key });
    await batchEnd(bench.gateway, id, key);
    expect(await text).toContain('[DONE]');
    expect(Number((await bench.recordOf(answer, key)).cost)).toBeGreaterThan(0);
  });

  it('returns 400 with the name that the gateway uses for the batch line', async () => {
    const refused = await bench.chat({}, { headers: { 'idempotency-key': '\u00a7batch_1/0' } });
    expect(refused.status).toBe(400);
  });
});
