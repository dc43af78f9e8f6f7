import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { linesOf } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { type DatabaseProxy, startDatabaseProxy } from '#test/database-proxy.ts';
import { liftLimits } from '#test/gateway.ts';
import { type BatchClient, batchClientOf, endOf, holdTable, requireSettled } from './batch-process.ts';
import { engineFile, givenKey, useProcesses } from '#test/programs/gateway-process.ts';

/** PostgreSQL goes away while a batch runs, and comes back: each line has one result, and is charged once. */

const processes = useProcesses();
const count = 60;
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
const text = linesOf(count, { body: { max_tokens: 10, standin: { output_tokens: 10, tpot_ms: 20 } } });

let db: Db;
let proxy: DatabaseProxy;

beforeEach(async () => {
  const databaseUrl = await processes.database();
  db = connectDb(databaseUrl);
  proxy = await startDatabaseProxy(databaseUrl);
});
afterEach(async () => {
  await db.close();
  await proxy.close();
});

async function startBatch(): Promise<{ readonly client: BatchClient; readonly id: string }> {
  const home = processes.home({ chat: flexEngine });
  const url = await processes.run({ home, databaseUrl: proxy.url, env }).url();
  await liftLimits(url, givenKey);
  const client = batchClientOf(url);
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
    const seen = await db.sql`select 1 from files where purpose = 'batch_output' and written_until is null`;
    expect(seen).toHaveLength(1);
  });
});
