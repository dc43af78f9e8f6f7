import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { type UsageRecord, verifyBooks } from '#core/metering/metering.ts';
import { decodeRecord, encodeRecord } from '#core/metering/records/spooled-record.ts';
import { createSpendingReports } from '#core/metering/reports/spent.ts';
import { chargeOf, useWallet } from '#test/wallet/test-wallet.ts';

describe('the spending of end users', () => {
  const bench = useWallet();
  const dayMs = 86_400_000;
  /** The day is over: records of ours are of its noon, whenever they are written. */
  const todayMs = Math.floor(Date.now() / dayMs) * dayMs - dayMs;
  const today = { fromMs: todayMs, toMs: todayMs + dayMs };
  const ofToday = (organizationId: string, picoUsd: bigint, fields: Partial<UsageRecord> = {}): UsageRecord =>
    chargeOf(organizationId, picoUsd, { id: uuidv7(todayMs + dayMs / 2), ...fields });

  it('is summed once by the day of the request, beside requests without an end user, in valid books', async () => {
    const organizationId = await bench.openWallet(1_000n);
    const spending = createSpendingReports(bench.db);
    const records = [
      ofToday(organizationId, 7n, { endUser: 'anna' }),
      ofToday(organizationId, 3n),
      ofToday(organizationId, 0n, { endUser: 'nobody pays' }),
      ofToday(organizationId, 5n, { endUser: 'anna' }),
      ofToday(organizationId, 2n, { endUser: 'ünal' }),
      ofToday(organizationId, 11n, { endUser: 'anna', id: uuidv7(todayMs - 1000) }),
    ];
    await bench.writer.write(records);
    await bench.writer.write(records.slice(1));
    const of = (user: string, span = today) => ({ type: 'user' as const, id: user, ...span });
    const both = { ...today, fromMs: todayMs - dayMs };
    const asked = [of('anna'), of('anna', both), of('ünal'), of('nobody')];
    expect(await spending.spentOf(organizationId, asked)).toEqual([12n, 23n, 2n, 0n]);
    const ids = records.map(({ id }) => id);
    const { picoUsd, counted } = await spending.spentWith(organizationId, of('anna'), [...ids, uuidv7()]);
    expect([picoUsd, new Set(counted)]).toEqual([12n, new Set(ids)]);
    expect(await spending.usersWith(organizationId, { ...today, leastPicoUsd: 3n, limit: 10 })).toEqual([
      { user: 'anna', picoUsd: 12n },
    ]);
    expect(await spending.usersWith(organizationId, { ...today, leastPicoUsd: 1n, limit: 1 })).toEqual([
      { user: 'anna', picoUsd: 12n },
    ]);
    expect(await spending.countUsersWith(organizationId, { ...today, leastPicoUsd: 1n })).toBe(2);
    const [row] = await bench.db.sql`select count(*)::int as rows from usage_users`;
    expect(row).toEqual({ rows: 3 });
    expect((await verifyBooks(bench.db)).findings).toEqual([]);
    await spending.forgetUsers(todayMs);
    expect(await spending.spentOf(organizationId, asked)).toEqual([12n, 12n, 2n, 0n]);
  });

  it('is read for keys and projects from the daily sums', async () => {
    const organizationId = await bench.openWallet(1_000n);
    const spending = createSpendingReports(bench.db);
    const one = ofToday(organizationId, 7n);
    const other = ofToday(organizationId, 4n, { projectId: one.projectId, keyId: uuidv7() });
    const before = ofToday(organizationId, 9n, {
      projectId: one.projectId,
      keyId: one.keyId,
      id: uuidv7(todayMs - 1),
    });
    await bench.writer.write([one, other, before]);
    const spans = [
      { type: 'api_key' as const, id: one.keyId, ...today },
      { type: 'api_key' as const, id: other.keyId, ...today },
      { type: 'project' as const, id: one.projectId, ...today },
      { type: 'project' as const, id: one.projectId, ...today, fromMs: todayMs - dayMs },
      { type: 'project' as const, id: uuidv7(), ...today },
    ];
    expect(await spending.spentOf(organizationId, spans)).toEqual([7n, 4n, 11n, 20n, 0n]);
    for (const [index, span] of spans.entries()) {
      const { picoUsd } = await spending.spentWith(organizationId, span, []);
      expect([index, picoUsd]).toEqual([index, [7n, 4n, 11n, 20n, 0n][index]]);
    }
  });

  it('is summed per model, and kept where a budget counts an earlier day', async () => {
    const [organizationId, other] = [await bench.openWallet(1_000n), await bench.openWallet(1_000n)];
    const spending = createSpendingReports(bench.db);
    const long = { ...today, fromMs: todayMs - 400 * dayMs };
    const old = { endUser: 'anna', id: uuidv7(todayMs - 300 * dayMs) };
    const large = ofToday(organizationId, 5n, { model: 'large', ...old });
    await bench.writer.write([
      large,
      ofToday(organizationId, 7n, { endUser: 'anna', model: 'small' }),
      ofToday(organizationId, 1n, { endUser: 'anna', model: 'other' }),
      ofToday(other, 9n, { endUser: 'anna', id: uuidv7(todayMs - 300 * dayMs + 1) }),
    ]);
    const of = (models: readonly string[] | null) => ({ type: 'user' as const, id: 'anna', models, ...long });
    const asked = [of(null), of(['large', 'small']), of(['unknown'])];
    const ofKey = { type: 'api_key' as const, id: large.keyId, models: ['large'], ...long };
    const read = (): Promise<readonly bigint[]> => spending.spentOf(organizationId, [...asked, ofKey]);
    expect(await read()).toEqual([13n, 12n, 0n, 5n]);
    for (const [index, span] of [...asked, ofKey].entries()) {
      const { picoUsd } = await spending.spentWith(organizationId, span, []);
      expect(picoUsd).toBe([13n, 12n, 0n, 5n][index]);
    }
    const users = { ...long, models: ['large', 'small'], leastPicoUsd: 1n };
    expect(await spending.usersWith(organizationId, { ...users, limit: 9 })).toEqual([{ user: 'anna', picoUsd: 12n }]);
    expect(await spending.countUsersWith(organizationId, { ...users, leastPicoUsd: 13n })).toBe(0);
    await spending.forgetUsers(todayMs, new Map([[organizationId, todayMs - 300 * dayMs]]));
    expect(await read()).toEqual([13n, 12n, 0n, 5n]);
    expect(await spending.spentOf(other, [of(null)])).toEqual([0n]);
    await spending.forgetUsers(todayMs, new Map([[organizationId, todayMs - 299 * dayMs]]));
    expect(await read()).toEqual([8n, 7n, 0n, 5n]);
  });

  it('keeps its end user in the spool', () => {
    const record = chargeOf(uuidv7(), 7n, { endUser: 'anna' });
    expect(decodeRecord(encodeRecord(record, 0))).toMatchObject({ endUser: 'anna' });
    expect(decodeRecord(encodeRecord(chargeOf(uuidv7(), 7n), 0))).not.toHaveProperty('endUser');
  });
});
