import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';

/** A gateway whose engine holds two GPUs, as a machine's `nvidia-smi` reports them. */

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

const until = (check: () => Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 100 });

const givenKey = `sk-hg-${'7'.repeat(48)}`;
let folder: string;
let database: TestDatabase;
let gateway: TestGateway;

const smi = `#!/bin/sh
case "$*" in
  *--query-gpu=uuid,memory.total*) printf 'GPU-11, 81559, NVIDIA H100, 0\\nGPU-22, 81559, NVIDIA H100, 1\\n' ;;
  *--query-gpu=uuid,memory.used*) printf 'GPU-11, 4, 81559\\nGPU-22, 4, 81559\\n' ;;
  *) true ;;
esac
`;

const engine = `version: 1
id: held
name: Held
hugging_face_id: headgate/held
task_type: chat
context_length: 8192
pricing: { input_per_million: 1, cached_input_per_million: 0.5, output_per_million: 2 }
driver: process
kind: vllm
command: [node, engines/standin/standin.js, --uds, "{socket}", --max-model-len, "8192", --tensor-parallel-size, "2"]
gpus: { count: 2 }
lora: [{ id: held-tuned, path: headgate/tuned, pricing: { input_per_million: 7, output_per_million: 8 } }]
`;

function start(): Promise<TestGateway> {
  const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}` };
  return startGateway({ env, enginesDir: join(folder, 'engines'), databaseUrl: database.url });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-margins-'));
  for (const name of ['bin', 'engines']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'bin', 'nvidia-smi'), smi);
  chmodSync(join(folder, 'bin', 'nvidia-smi'), 0o755);
  writeFileSync(join(folder, 'engines', 'held.yaml'), engine);
  database = await createTestDatabase();
  gateway = await start();
});
afterAll(async () => {
  await gateway.stop();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

const window = (): string =>
  `from=${new Date(Date.now() - 3_600_000).toISOString()}&to=${new Date(Date.now() + 3_600_000).toISOString()}`;

async function ask(
  path: string,
  init: { key?: string | null; body?: unknown } = {},
): Promise<{ status: number; body: Json }> {
  const response = await gateway.request(path, init);
  return { status: response.status, body: await response.json() };
}

async function chat(model = 'held'): Promise<void> {
  const body = { model, messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 20 };
  expect((await ask('/v1/chat/completions', { body })).status).toBe(200);
}

const cluster = async (): Promise<Json> =>
  (await ask(`/v1/billing/costs?${window()}`)).body.organizations[0]?.clusters[0];

describe('GET /v1/billing/margins', () => {
  it('returns 401 or 403 to all but operators, and 400 for an invalid window', async () => {
    const { body } = await ask('/v1/organizations', { body: { name: 'Customer' } });
    const customer = { key: body.management_key };
    expect((await ask(`/v1/billing/margins?${window()}`, { key: null })).status).toBe(401);
    expect((await ask(`/v1/billing/margins?${window()}`, customer)).body.error.code).toBe('FORBIDDEN');
    const wrong = await ask('/v1/billing/margins?from=2026-01-01&org=x');
    expect(wrong.body.error.details.map(({ field }: Json) => field)).toEqual(['org', 'to']);
  });

  it('shows the charges of requests and the GPU-hours of replicas for each model', async () => {
    await chat();
    await until(async () => expect(await cluster()).toMatchObject({ running: true, gpu_hours: expect.any(Number) }));
    const unrated = (await ask(`/v1/billing/margins?${window()}`)).body;
    expect(unrated.models).toMatchObject([
      { model: 'held', requests: 1, complete: false, margin: null, break_even: null, cost: '0' },
    ]);
    const dates = { effective_from: '2020-01-01', retroactive: true };
    const card = { hardware_profile: 'NVIDIA H100', currency: 'USD', gpu_hour: '3600', ...dates };
    expect((await ask('/v1/billing/rate-cards', { body: card })).status).toBe(201);
    await until(async () => expect((await cluster()).line_items[0].rated).toBe(true));
    // The hours that are metered come to the request a moment later.
    const { body } = await vi.waitFor(
      async () => {
        const answer = await ask(`/v1/billing/margins?${window()}`);
        expect(answer.body.models[0].gpu_hours.busy).toBeGreaterThan(0);
        return answer;
      },
      { timeout: 300_000, interval: 100 },
    );
    const [model] = body.models;
    const usage = (await ask(`/v1/usage/summary?from=${new Date(Date.now() - 3_600_000).toISOString()}`)).body.totals;
    expect(model).toMatchObject({
      revenue: usage.cost,
      complete: true,
      unconverted: [],
      tokens: { input: usage.input_tokens - usage.input_cached_tokens, output: usage.output_tokens },
      prices: { input_per_million: '1', cached_input_per_million: '0.5', output_per_million: '2' },
    });
    const { held, busy, idle, starting, unrated: free } = model.gpu_hours;
    expect(starting).toBeGreaterThan(0);
    expect(free).toBe(0);
    expect(busy + idle + starting).toBeCloseTo(held, 5);
    expect(model.shares.busy + model.shares.idle + model.shares.starting).toBeCloseTo(1, 6);
    // A dollar a second and GPU.
    expect(Number(model.cost) / 3600).toBeCloseTo(held, 5);
    expect(Number(model.margin)).toBeCloseTo(Number(model.revenue) - Number(model.cost), 9);
    const tokens = model.tokens.input + model.tokens.cached_input + model.tokens.output;
    expect(Number(model.cost_per_million_tokens)).toBeCloseTo((Number(model.cost) / tokens) * 1e6, 3);
    expect(model.break_even.factor).toBeCloseTo(Number(model.cost) / Number(model.revenue), 0);
    expect(body.totals).toEqual({
      revenue: model.revenue,
      cost: model.cost,
      complete: true,
      margin: model.margin,
    });
    expect(body.warnings).toEqual([]);
    const quick = (await ask(`/v1/billing/margins?${window()}&busy=false`)).body;
    expect(quick.totals.revenue).toBe(body.totals.revenue);
    expect(quick.models[0]).toMatchObject({ gpu_hours: { busy: null, idle: null }, shares: null });
    expect((await ask(`/v1/billing/margins?${window()}&busy=no`)).status).toBe(400);
  });

  it('shows one interval for each run of a replica, with its end, also after a gateway restart', async () => {
    await chat();
    await gateway.stop();
    gateway = await start();
    await until(async () => expect(await cluster()).toMatchObject({ running: false, estimated: false }));
    const before = await cluster();
    await chat();
    await until(async () => expect(await cluster()).toMatchObject({ running: true }));
    const rows = await gateway.db.sql`
      select i.gpus, i.nodes, r.gpus as given from usage_intervals i join replica_runs r on r.id::text = i.node_id`;
    const [runs] = await gateway.db.sql`select count(*)::int as total from replica_runs`;
    expect(rows).toHaveLength(runs?.['total']);
    expect(rows.map(({ gpus, nodes }) => [gpus, nodes])).toEqual(rows.map(() => [2, 0]));
    expect(before).toMatchObject({ id: 'held', name: 'Held', source: 'replica', node_hours: 0 });
    expect((await cluster()).gpu_hours).toBeGreaterThan(before.gpu_hours);
  });

  it("counts an adapter's requests with its base model", async () => {
    const before = (await ask(`/v1/billing/margins?${window()}`)).body.models[0];
    await chat('held-tuned');
    const { models, totals } = (await ask(`/v1/billing/margins?${window()}`)).body;
    expect(models.map(({ model }: Json) => model)).toEqual(['held']);
    expect(models[0]).toMatchObject({ requests: before.requests + 1, revenue: totals.revenue, prices: null });
    const usage = (await ask(`/v1/usage/summary?from=${new Date(Date.now() - 3_600_000).toISOString()}`)).body.totals;
    expect(models[0].revenue).toBe(usage.cost);
    const { held, busy, idle, starting } = models[0].gpu_hours;
    expect(busy + idle + starting).toBeCloseTo(held, 5);
    expect(busy).toBeGreaterThan(before.gpu_hours.busy);
  });
});
