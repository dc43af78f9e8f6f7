import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BillingStore, openBillingStore } from '#app/books.ts';
import { lockGatewayDir } from '#base/config/data-dir.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

let database: TestDatabase;
let db: Db;
const dataDir = mkdtempSync(join(tmpdir(), 'hg-left-'));
beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterAll(async () => {
  await db.close();
  await database.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

function open(
  gatewayDir: string,
  worker: { slot: number; slots: number } = { slot: 0, slots: 1 },
): Promise<BillingStore> {
  return openBillingStore({ db, databaseUrl: database.url, dataDir, gatewayDir, ...worker, log: createLog('silent') });
}

async function close(...places: readonly BillingStore[]): Promise<void> {
  for (const { spool, books } of places) {
    await spool.close();
    await books.close();
  }
}

const readAll = async ({ spool }: BillingStore): Promise<string[]> =>
  (await spool.read(10)).map(({ data }) => data.toString());

describe('usage in the spool of another gateway in the same data folder', () => {
  it('stays there while that gateway lives, and is taken over from all its workers once it has died', async () => {
    const [root, below] = [lockGatewayDir(dataDir), lockGatewayDir(dataDir)];
    const workers = [await open(below.path, { slot: 0, slots: 2 }), await open(below.path, { slot: 1, slots: 2 })];
    for (const [index, { spool }] of workers.entries()) await spool.append([Buffer.from(`of worker ${index}`)]);
    await close(...workers);
    const other = await open(root.path);
    await other.adoptOrphaned();
    expect(other.spool.count).toBe(0);
    below.release();
    await other.adoptOrphaned();
    expect(await readAll(other)).toEqual(['of worker 0']);
    expect(await readAll(other)).toEqual(['of worker 1']);
    // The folder is free for the next gateway, which finds nothing that is written already.
    const again = lockGatewayDir(dataDir);
    expect(again.path).toBe(below.path);
    const next = await open(again.path);
    expect(next.spool.count).toBe(0);
    await close(other, next);
    for (const { release } of [root, again]) release();
  });

  it('is taken over from the data folder itself by a gateway in a subfolder', async () => {
    const [root, below] = [lockGatewayDir(dataDir), lockGatewayDir(dataDir)];
    const left = await open(root.path);
    await left.adoptOrphaned();
    const before = left.spool.count;
    await left.spool.append([Buffer.from('left')]);
    await close(left);
    root.release();
    const other = await open(below.path);
    await other.adoptOrphaned();
    expect(other.spool.count).toBe(before + 1);
    await close(other);
    below.release();
  });
});
