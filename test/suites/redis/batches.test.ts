import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { flexPricing, linesOf } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';

/** Batches of several gateways: one works at each, and another one goes on where it was killed. */

let cluster: Cluster;
const concurrency = 8;

beforeAll(async () => {
  cluster = await startCluster({
    count: 1,
    pricing: flexPricing,
    env: { HEADGATE_LEASE_SECONDS: '3', HEADGATE_BATCH_CONCURRENCY: String(concurrency) },
  });
});
afterAll(() => cluster.stop());

const tokens = 8;
const count = 400;

async function counted(name: string): Promise<number> {
  const text = await (await fetch(new URL('/metrics', cluster.engineUrl))).text();
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

async function start(key: string, text: string, which = 0): Promise<string> {
  const form = new FormData();
  form.set('file', new File([text], 'in.jsonl'));
  form.set('purpose', 'batch');
  const url = new URL('/v1/files', cluster.gateways[which]?.url);
  const sent = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${key}` }, body: form });
  const { id: fileId }: Body = await sent.json();
  const body = { input_file_id: fileId, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id }: Body = await (await cluster.ask(which, '/v1/batches', { body, key })).json();
  return id;
}

interface Charged {
  readonly lines: number;
  readonly requests: number;
}

/** Lines of a batch that were charged, and how often. */
async function chargedOf(id: string): Promise<Charged> {
  const [row] = await cluster.sql<{ lines: string; requests: string }[]>`
    select count(distinct client_request_id) as lines, count(*) as requests from usage_requests
    where cost > 0 and client_request_id like ${`${id}/%`}`;
  return { lines: Number(row?.lines), requests: Number(row?.requests) };
}

async function openCustomer(which: number): Promise<string> {
  const { key } = await cluster.organization('50', which);
  const keys: Body = await (await cluster.ask(which, '/v1/keys', { key })).json();
  const body = { requests_per_minute: null, max_concurrency: null };
  await cluster.ask(which, `/v1/keys/${keys.data[0].id}`, { method: 'PATCH', key, body });
  return key;
}

/** Once it is known: Redis may just have come back. */
const balanceOf = (which: number, key: string): Promise<number> =>
  eventually(async () => {
    const answer = await cluster.ask(which, '/v1/wallet', { key });
    const body: Body = await answer.json();
    return answer.ok && Number(body.balance);
  });

describe('the gateway that works on a batch', () => {
  it('is replaced after kill -9: each request is answered and charged once', async () => {
    const { key } = await cluster.organization('50');
    const keys: Body = await (await cluster.ask(0, '/v1/keys', { key })).json();
    const { id: keyId } = keys.data[0];
    await cluster.ask(0, `/v1/keys/${keyId}`, {
      method: 'PATCH',
      key,
      body: { requests_per_minute: null, max_concurrency: null },
    });
    const before = await counted('vllm:generation_tokens_total');
    // Slow enough that a gateway can start meanwhile.
    const body = { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: 80 } };
    const id = await start(key, linesOf(count, { body }));
    const read = async (which: number): Promise<Body> =>
      (await cluster.ask(which, `/v1/batches/${id}`, { key })).json();
    await eventually(async () => (await read(0)).request_counts.completed > 20);
    // It has the batch, since it was the only gateway when that was made.
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
    const { totals }: Body = await (await cluster.ask(left, '/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(totals.outcomes.completed).toBe(count);
    expect(totals.output_tokens).toBe(count * tokens);
    // The tokens that the engine was computing for the killed one were computed again.
    const computed = (await counted('vllm:generation_tokens_total')) - before;
    expect(computed).toBeGreaterThanOrEqual(totals.output_tokens);
    expect(computed - totals.output_tokens).toBeLessThanOrEqual(concurrency * tokens);
    const { balance }: Body = await (await cluster.ask(left, '/v1/wallet', { key })).json();
    expect(Number(balance)).toBeCloseTo(50 - Number(totals.cost), 9);
  });

  it('is replaced while frozen, and then ends its own requests without a charge', async () => {
    const [frozen, other] = [1, 2];
    const key = await openCustomer(frozen);
    const slow = { max_tokens: 2000, standin: { output_tokens: 2000, tpot_ms: 20 } };
    const id = await start(key, linesOf(4, { body: slow }), frozen);
    const running = (): Promise<number> => counted('vllm:num_requests_running');
    await eventually(async () => (await running()) > 0);
    await cluster.start();
    const before = await counted('vllm:generation_tokens_total');
    cluster.gateways[frozen]?.child.kill('SIGSTOP');
    // The request of a sleeping gateway is computed on, and asked again beside it.
    await eventually(async () => {
      const [row] = await cluster.sql<{ fence: string }[]>`select fence from batches where status = 'in_progress'`;
      return Number(row?.fence) > 1;
    });
    const asleep = await running();
    await eventually(async () => (await running()) > asleep);
    cluster.gateways[frozen]?.child.kill('SIGCONT');
    const writtenOff = async (): Promise<number> => {
      const [row] = await cluster.sql<{ count: string }[]>`
        select count(*) as count from usage_requests
        where outcome = 'ended' and cost = 0 and written_off > 0 and client_request_id like ${`${id}/%`}`;
      return Number(row?.count);
    };
    await eventually(async () => (await writtenOff()) > 0);
    await cluster.ask(other, `/v1/batches/${id}/cancel`, { method: 'POST', key });
    await eventually(async () => {
      const batch: Body = await (await cluster.ask(other, `/v1/batches/${id}`, { key })).json();
      return batch.status === 'cancelled';
    });
    expect(await counted('vllm:generation_tokens_total')).toBeGreaterThan(before);
    expect(await chargedOf(id)).toEqual({ lines: 0, requests: 0 });
    expect(await balanceOf(other, key)).toBe(50);
    await eventually(async () => (await running()) === 0);
  });

  it('charges nothing for answers from after the batch was canceled while it was frozen', async () => {
    const [frozen, other] = [1, 2];
    const key = await openCustomer(frozen);
    // Only this gateway works at batches, until it sleeps.
    cluster.gateways[other]?.child.kill('SIGSTOP');
    const body = { max_tokens: 20, standin: { output_tokens: 20, tpot_ms: 50 } };
    const id = await start(key, linesOf(200, { body }), frozen);
    const uuid = parseId('batch', id);
    const completed = async (): Promise<number> => {
      const [row] = await cluster.sql<{ completed: number }[]>`select completed from batches where id = ${uuid}::uuid`;
      return row?.completed ?? 0;
    };
    await eventually(async () => (await completed()) > 4);
    const cancel = (): Promise<boolean> =>
      cluster.sql
        .begin(async (tx) => {
          await tx`set local lock_timeout = '1s'`;
          await tx`update batches set status = 'cancelling', cancelling_at = now() where id = ${uuid}::uuid`;
        })
        .then(
          () => true,
          () => false,
        );
    // Frozen within a transaction it holds the batch: then it is frozen once more, a moment later.
    await eventually(async () => {
      cluster.gateways[frozen]?.child.kill('SIGSTOP');
      const isCancelled = await cancel();
      if (!isCancelled) cluster.gateways[frozen]?.child.kill('SIGCONT');
      return isCancelled;
    });
    cluster.gateways[other]?.child.kill('SIGCONT');
    await eventually(async () => {
      const [row] = await cluster.sql<{ status: string }[]>`select status from batches where id = ${uuid}::uuid`;
      return row?.status === 'cancelled';
    });
    cluster.gateways[frozen]?.child.kill('SIGCONT');
    const running = async (): Promise<number> => {
      const [row] = await cluster.sql<{ count: string }[]>`
        select count(*) as count from idempotency_keys where state = 'running'`;
      return Number(row?.count);
    };
    await eventually(async () => (await counted('vllm:num_requests_running')) + (await running()) === 0);
    const lines = await completed();
    expect(await chargedOf(id)).toEqual({ lines, requests: lines });
    const { totals }: Body = await (await cluster.ask(other, '/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(await balanceOf(other, key)).toBeCloseTo(50 - Number(totals.cost), 9);
  });

  it('is frozen again and again, and each line has one answer and one charge', async () => {
    const [first, second] = [1, 2];
    const key = await openCustomer(first);
    const lines = 400;
    const body = { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: 20 } };
    const id = await start(key, linesOf(lines, { body }), first);
    // A gateway that sleeps, or has just woken, may have nothing to say.
    const read = async (): Promise<{ readonly status: string; readonly completed: number }> => {
      const [row] = await cluster.sql<{ status: string; completed: number }[]>`
        select status, completed from batches where id = ${parseId('batch', id)}::uuid`;
      return row ?? { status: 'gone', completed: 0 };
    };
    for (const which of [first, second, first, second]) {
      const { completed } = await read();
      cluster.gateways[which]?.child.kill('SIGSTOP');
      await eventually(async () => {
        const now = await read();
        return now.status === 'completed' || now.completed > completed + 50;
      });
      cluster.gateways[which]?.child.kill('SIGCONT');
    }
    await eventually(async () => (await read()).status === 'completed');
    const batch: Body = await eventually(async () => {
      const answer = await cluster.ask(second, `/v1/batches/${id}`, { key });
      return answer.ok ? answer.json() : null;
    });
    expect(batch).toMatchObject({ request_counts: { total: lines, completed: lines, failed: 0 }, error_file_id: null });
    const text = await (await cluster.ask(second, `/v1/files/${batch.output_file_id}/content`, { key })).text();
    expect(text.trimEnd().split('\n')).toHaveLength(lines);
    expect(await chargedOf(id)).toEqual({ lines, requests: lines });
    const { totals }: Body = await (await cluster.ask(second, '/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(await balanceOf(second, key)).toBeCloseTo(50 - Number(totals.cost), 9);
  });
});

describe('a batch', () => {
  it('continues while Redis is unresponsive, and after Redis has lost its data', async () => {
    const key = await openCustomer(1);
    const lines = 300;
    const body = { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: 40 } };
    const id = await start(key, linesOf(lines, { body }), 1);
    const read = async (): Promise<Body> => (await cluster.ask(2, `/v1/batches/${id}`, { key })).json();
    await eventually(async () => (await read()).request_counts.completed > 50);
    process.kill(cluster.redis.pid ?? 0, 'SIGSTOP');
    await new Promise((resolve) => setTimeout(resolve, 6000));
    process.kill(cluster.redis.pid ?? 0, 'SIGCONT');
    await cluster.redis.flush();
    const batch = await eventually(async () => {
      const now = await read();
      return now.status === 'completed' ? now : null;
    });
    expect(batch).toMatchObject({ request_counts: { total: lines, completed: lines, failed: 0 } });
    expect(await chargedOf(id)).toEqual({ lines, requests: lines });
    const { totals }: Body = await (await cluster.ask(2, '/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(await balanceOf(2, key)).toBeCloseTo(50 - Number(totals.cost), 9);
  });
});
