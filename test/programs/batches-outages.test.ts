import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { parseId } from '#base/id.ts';
import { linesOf } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { type DatabaseProxy, startDatabaseProxy } from '#test/database-proxy.ts';
import { type BatchClient, batchClientOf, endOf, holdTable, openCustomer, requireSettled } from './batch-process.ts';
import {
  clearHome,
  engineFile,
  type GatewayProcess,
  givenKey,
  type Home,
  makeHome,
  runGateway,
} from '#test/programs/gateway-process.ts';

/** PostgreSQL goes away while a batch runs, and comes back: each line has one result, and is charged once. */

const count = 30;
const leaseSeconds = 2;
const env = {
  HEADGATE_BOOTSTRAP_KEY: givenKey,
  HEADGATE_LEASE_SECONDS: String(leaseSeconds),
  HEADGATE_BATCH_CONCURRENCY: '6',
};
const flexEngine = engineFile('chat').replace(
  'output_per_million: 0.40',
  'output_per_million: 0.40, flex_multiplier: 0.5',
);
const text = linesOf(count, { body: { max_tokens: 10, standin: { output_tokens: 10, tpot_ms: 40 } } });

let home: Home;
let database: TestDatabase;
let db: Db;
let proxy: DatabaseProxy;
let gateway: GatewayProcess;

beforeAll(async () => {
  home = makeHome({ chat: flexEngine });
  database = await createTestDatabase();
  db = connectDb(database.url);
  proxy = await startDatabaseProxy(database.url);
  gateway = runGateway({ home, databaseUrl: proxy.url, env });
});
afterAll(async () => {
  gateway.signal('SIGKILL');
  await gateway.exited;
  await clearHome(home);
  await db.close();
  await proxy.close();
  await database.drop();
});

/** A batch of an organization of its own. */
async function startBatch(): Promise<{ readonly client: BatchClient; readonly id: string }> {
  const url = await gateway.url();
  const { key } = await openCustomer(url);
  const client = batchClientOf(url, key);
  const id = await client.start(text);
  await eventually(async () => (await client.read(id)).request_counts.completed > 3);
  return { client, id };
}

/** @returns how many of its lines were answered, and charged once */
async function completed(client: BatchClient, id: string): Promise<number> {
  const batch: Body = await endOf(client, id);
  if (batch.status !== 'completed') throw new Error(`the batch is ${batch.status}`);
  return (await requireSettled(client, batch, { count, paidUsd: 10 })).output.length;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe('a batch', () => {
  it.each([
    ['for a moment', 300],
    ['for longer than it is held', leaseSeconds * 2000],
  ])('continues after its database was unavailable %s', async (_how, ms) => {
    const { client, id } = await startBatch();
    proxy.cut();
    await pause(ms);
    proxy.restore();
    expect(await completed(client, id)).toBe(count);
  });

  it('continues after its database accepted connections and sent nothing', async () => {
    const { client, id } = await startBatch();
    proxy.answerWith('silence');
    await pause(leaseSeconds * 2000);
    proxy.restore();
    expect(await completed(client, id)).toBe(count);
  });

  it('continues after its database blocked statements for longer than its lease', async () => {
    const { client, id } = await startBatch();
    const held = await holdTable(db, 'batches');
    await pause(leaseSeconds * 2000);
    await held.release();
    expect(await completed(client, id)).toBe(count);
  });

  it('counts each line once, also when the answer to its recording is lost', async () => {
    const { client, id } = await startBatch();
    for (let times = 0; times < 4; times += 1) {
      proxy.loseNextAnswer();
      await pause(200);
    }
    expect(await completed(client, id)).toBe(count);
    expect(proxy.lost).toBeGreaterThan(0);
  });

  it('completes when its database fails while its files are written', async () => {
    const { client, id } = await startBatch();
    const held = await holdTable(db, 'file_chunks');
    await held.awaited();
    proxy.cut();
    await held.release();
    await pause(500);
    proxy.restore();
    expect(await completed(client, id)).toBe(count);
    const seen = await db.sql`
      select 1 from files where purpose = 'batch_output' and written_until is null and organization_id =
        (select organization_id from batches where id = ${parseId('batch', id)}::uuid)`;
    expect(seen).toHaveLength(1);
  });
});
