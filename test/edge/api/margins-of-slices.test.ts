import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { standinFile } from '#test/inference/inference-gateway.ts';

/** A gateway whose engine has a MIG slice, as a machine's `nvidia-smi` reports it. */

type Json = ReturnType<JSON['parse']>;

const smi = `#!/bin/sh
case "$*" in
  -L) printf 'GPU 0: NVIDIA H100 (UUID: GPU-11)\\n  MIG 3g.40gb     Device  0: (UUID: MIG-33)\\n' ;;
  *--query-gpu=uuid,memory.total*) printf 'GPU-11, 81559, NVIDIA H100, 0, Enabled\\n' ;;
  *) true ;;
esac
`;

let folder: string;
let database: TestDatabase;
let gateway: TestGateway;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-slices-'));
  for (const name of ['bin', 'engines']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'bin', 'nvidia-smi'), smi);
  chmodSync(join(folder, 'bin', 'nvidia-smi'), 0o755);
  writeFileSync(join(folder, 'engines', 'chat.yaml'), standinFile('chat', { lines: ['gpus: { count: 1 }'] }));
  database = await createTestDatabase();
  const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}` };
  gateway = await startGateway({ env, enginesDir: join(folder, 'engines'), databaseUrl: database.url });
});
afterAll(async () => {
  await gateway.stop();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

async function ask(path: string, init: { method?: string; body?: unknown } = {}): Promise<Json> {
  return (await gateway.request(path, init)).json();
}

const window = (): string =>
  `from=${new Date(Date.now() - 3_600_000).toISOString()}&to=${new Date(Date.now() + 3_600_000).toISOString()}`;

it('meters 3/7 of a GPU-hour for an hour of a slice of 3/7, at the price of its card', async () => {
  const dates = { effective_from: '2020-01-01', retroactive: true };
  const card = { hardware_profile: 'NVIDIA H100', currency: 'USD', gpu_hour: '7000', ...dates };
  await ask('/v1/billing/rate-cards', { body: card });
  const body = { model: 'chat', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 20 };
  expect(await ask('/v1/chat/completions', { body })).toMatchObject({ object: 'chat.completion' });
  await ask('/v1/admin/engines/chat/stop', { method: 'POST', body: {} });
  const cluster = await vi.waitFor(
    async () => {
      const [found] = (await ask(`/v1/billing/costs?${window()}`)).organizations[0]?.clusters ?? [];
      expect(found).toMatchObject({ running: false });
      return found;
    },
    { timeout: 300_000, interval: 100 },
  );
  const db = connectDb(database.url, { poolMax: 1 });
  const [run] = await db.sql<{ hours: number }[]>`
    select (ended_ms - started_ms) / 3600000.0::float8 as hours from usage_intervals`;
  await db.close();
  const hours = ((run?.hours ?? 0) * 3) / 7;
  expect(cluster.gpu_hours).toBeCloseTo(hours, 5);
  expect(Number(cluster.amounts[0].amount_exact)).toBeCloseTo(hours * 7000, 1);
  const [model] = (await ask(`/v1/billing/margins?${window()}`)).models;
  expect(model.gpu_hours.held).toBeCloseTo(hours, 5);
  expect(model.gpu_hours.busy).toBeGreaterThan(0);
  expect(model.gpu_hours.busy + model.gpu_hours.idle + model.gpu_hours.starting).toBeCloseTo(model.gpu_hours.held, 5);
});
