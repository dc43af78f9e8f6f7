import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { flexPricing, linesOf } from '../../edge/inference/batch-bench.ts';
import { type Body, eventually } from '../../edge/inference/inference-gateway.ts';
import { type Cluster, startCluster } from './gateway-cluster.ts';

/** Batches of several gateways: one works at each, and another one goes on where it was killed. */

let cluster: Cluster;
const concurrency = 32;

beforeAll(async () => {
  cluster = await startCluster({
    count: 1,
    pricing: flexPricing,
    env: { HEADGATE_LEASE_SECONDS: '3', HEADGATE_BATCH_CONCURRENCY: String(concurrency) },
  });
});
afterAll(() => cluster.stop());

const tokens = 8;
const count = 3000;

async function counted(name: string): Promise<number> {
  const text = await (await fetch(new URL('/metrics', cluster.engineUrl))).text();
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

async function start(key: string, text: string): Promise<string> {
  const form = new FormData();
  form.set('file', new File([text], 'in.jsonl'));
  form.set('purpose', 'batch');
  const url = new URL('/v1/files', cluster.gateways[0]?.url);
  const sent = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${key}` }, body: form });
  const { id: fileId }: Body = await sent.json();
  const body = { input_file_id: fileId, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id }: Body = await (await cluster.ask(0, '/v1/batches', { body, key })).json();
  return id;
}

describe('of two gateways the one that works at a batch', () => {
  it('is killed with -9: the other one goes on, each request is answered and charged once', async () => {
    const { key } = await cluster.organization('50');
    const keys: Body = await (await cluster.ask(0, '/v1/keys', { key })).json();
    const { id: keyId } = keys.data[0];
    await cluster.ask(0, `/v1/keys/${keyId}`, {
      method: 'PATCH',
      key,
      body: { requests_per_minute: null, max_concurrency: null },
    });
    const before = await counted('vllm:generation_tokens_total');
    const body = { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: 5 } };
    const id = await start(key, linesOf(count, { body }));
    const read = async (which: number): Promise<Body> =>
      (await cluster.ask(which, `/v1/batches/${id}`, { key })).json();
    await eventually(async () => (await read(0)).request_counts.completed > 150);
    // It has the batch, since it was alone when that was made.
    const left = 1;
    await cluster.start();
    await cluster.gateways[0]?.end('SIGKILL');
    const atKill = await read(left);
    expect(atKill.request_counts.completed).toBeLessThan(count);
    const batch = await eventually(async () => {
      const now = await read(left);
      return now.status === 'completed' ? now : null;
    });
    expect(batch).toMatchObject({ request_counts: { total: count, completed: count, failed: 0 }, error_file_id: null });
    const text = await (await cluster.ask(left, `/v1/files/${batch.output_file_id}/content`, { key })).text();
    const ids = text
      .trimEnd()
      .split('\n')
      .map((line): Body => JSON.parse(line).custom_id);
    expect(ids).toEqual(Array.from({ length: count }, (_, n) => `line-${n}`));
    const { totals }: Body = await (await cluster.ask(left, '/v1/usage/summary', { key })).json();
    expect(totals.outcomes.completed).toBe(count);
    expect(totals.output_tokens).toBe(count * tokens);
    // What the engine was computing for the killed one was computed again.
    const computed = (await counted('vllm:generation_tokens_total')) - before;
    expect(computed).toBeGreaterThanOrEqual(totals.output_tokens);
    expect(computed - totals.output_tokens).toBeLessThanOrEqual(concurrency * tokens);
    const { balance }: Body = await (await cluster.ask(left, '/v1/wallet', { key })).json();
    expect(Number(balance)).toBeCloseTo(50 - Number(totals.cost), 9);
  });
});
