import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { createHistory } from '#core/metering/metering.ts';
import { chargeOf, useWallet } from '#test/wallet/test-wallet.ts';

describe('usage history', () => {
  const bench = useWallet();

  const everything = (organizationId: string) => ({
    organizationId,
    keyId: null,
    projectId: null,
    model: null,
    outcome: null,
    endUser: null,
    status: null,
    error: null,
    fromMs: null,
    toMs: null,
    before: null,
  });

  it('returns 503 overloaded for a query beyond the statement timeout, and answers again afterwards', async () => {
    const limits = { lockTimeoutMs: null, statementTimeoutMs: 1000, idleInTransactionTimeoutMs: 1000 };
    const db = connectDb(bench.url, { poolMax: 1, limits });
    const history = createHistory({ db, wallet: bench.wallet, connections: 1, waitMsMax: 60_000 });
    const organizationId = await bench.openWallet(1n);
    const asked = { organizationId, keyId: null, fromMs: 0, toMs: 3_600_000, groupBy: [], groupsMax: 1 } as const;
    await bench.db.sql.begin(async (tx) => {
      await tx.unsafe('LOCK TABLE usage_refusals IN ACCESS EXCLUSIVE MODE');
      await expect(history.summarize(asked)).rejects.toMatchObject({ code: 'overloaded', status: 503 });
    });
    expect(await history.summarize(asked)).toMatchObject({ kind: 'sums' });
    await db.close();
  });

  it('is read by others while a client reads all records and pauses', async () => {
    const history = createHistory({ db: bench.db, wallet: bench.wallet, connections: 1, waitMsMax: 60_000 });
    const organizationId = await bench.openWallet(1n);
    for (let i = 0; i < 3; i += 1) {
      await bench.writer.write(Array.from({ length: 500 }, () => chargeOf(organizationId, 0n)));
    }
    const all = history.readAllRecords(everything(organizationId));
    const first = await all.next();
    const page = await history.listRecords({ ...everything(organizationId), limit: 5 });
    expect(page.records).toHaveLength(5);
    const rest: unknown[] = [];
    for await (const records of all) rest.push(...records);
    expect((first.done === true ? 0 : first.value.length) + rest.length).toBe(1500);
  });
});
