import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { uuidTimeMs, uuidv7 } from '#base/id.ts';
import { createHistory, type RecordFilter, type UsageRecord } from '#core/metering/metering.ts';
import { chargeOf, useWallet } from '#test/wallet/test-wallet.ts';
import { idAt } from '#test/metering/recorded-usage.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const start = Date.UTC(2026, 2, 1);
const models = ['small', 'large', 'rare'];
const outcomes = ['completed', 'aborted', 'ended', 'failed'] as const;

describe('a page of records', () => {
  const bench = useWallet();
  const reports = () => createHistory({ db: bench.db, wallet: bench.wallet, connections: 2, waitMsMax: 60_000 });

  const everything = (organizationId: string): RecordFilter => ({
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
    limit: 500,
  });

  /** The expected result of a filter: all that matches, newest first. */
  function matching(records: readonly UsageRecord[], filter: RecordFilter): readonly UsageRecord[] {
    return records
      .filter(
        (record) =>
          record.organizationId === filter.organizationId &&
          (filter.keyId === null || record.keyId === filter.keyId) &&
          (filter.projectId === null || record.projectId === filter.projectId) &&
          (filter.model === null || record.model === filter.model) &&
          (filter.outcome === null || record.outcome === filter.outcome) &&
          (filter.fromMs === null || uuidTimeMs(record.id) >= filter.fromMs) &&
          (filter.toMs === null || uuidTimeMs(record.id) < filter.toMs) &&
          (filter.before === null || record.id < filter.before),
      )
      .toSorted((a, b) => (a.id < b.id ? 1 : -1));
  }

  /** Over 200 days: a busy one, busy hours, and single requests far apart. */
  async function openHistory() {
    const [organizationId, other] = [await bench.openWallet(10n ** 9n), await bench.openWallet(10n ** 9n)];
    const keys = Array.from({ length: 4 }, () => ({ keyId: uuidv7(), projectId: uuidv7() }));
    const times = [
      ...Array.from({ length: 200 }, (_, i) => start + 100 * dayMs + i * 421_000),
      ...Array.from({ length: 100 }, (_, i) => start + 30 * dayMs + (i % 3) * hourMs + i * 1000),
      ...Array.from({ length: 60 }, (_, i) => start + i * 3.3 * dayMs),
      // Several in the last and in the first millisecond of an hour.
      ...Array.from({ length: 40 }, (_, i) => start + 50 * dayMs + (i % 4) * hourMs - (i % 2)),
    ];
    const records = times.map((time, i) =>
      chargeOf(i % 10 === 0 ? other : organizationId, BigInt(i % 3), {
        ...keys[(i * 7) % 4],
        // A key is of one organization.
        ...(i % 10 === 0 && { keyId: other, projectId: other }),
        id: idAt(Math.floor(time)),
        model: i % 37 === 1 ? 'rare' : i % 3 === 0 ? 'large' : 'small',
        outcome: outcomes[i % 41 === 0 ? 3 : i % 13 === 0 ? 1 : 0],
      }),
    );
    for (let from = 0; from < records.length; from += 50) await bench.writer.write(records.slice(from, from + 50));
    return { organizationId, keys, records };
  }

  it('is found by a status that the sums do not know, over a history of 150,000 hours', async () => {
    const organizationId = await bench.openWallet(10n ** 9n);
    const [old, newer] = [idAt(Date.UTC(2008, 0, 1, 5)), idAt(Date.UTC(2026, 0, 1, 5))];
    await bench.writer.write([
      chargeOf(organizationId, 1n, { id: old, status: 201 }),
      chargeOf(organizationId, 1n, { id: newer }),
    ]);
    const { sql } = bench.db;
    for (const [table, unit] of [
      ['usage_hourly', 'hour'],
      ['usage_daily', 'day'],
    ] as const) {
      await sql.unsafe(`insert into ${table} select (jsonb_populate_record(s, jsonb_build_object('${unit}', t))).*
        from ${table} s, generate_series('2008-01-02'::timestamptz, '2025-12-30', '1 ${unit}') t
        where s.organization = (select code from usage_ids where id = '${organizationId}')
          and s.${unit} = (select max(${unit}) from ${table} where organization = s.organization)`);
    }
    const { records } = await reports().listRecords({ ...everything(organizationId), status: 201 });
    expect(records.map(({ id }) => id)).toEqual([old]);
  });

  it('is empty for keys, projects, models and organizations without records', async () => {
    const { organizationId } = await openHistory();
    const filter = everything(organizationId);
    const empty = { records: [], more: false };
    for (const more of [
      { keyId: uuidv7() },
      { projectId: uuidv7() },
      { model: 'another' },
      { organizationId: uuidv7() },
    ]) {
      expect(await reports().listRecords({ ...filter, ...more })).toEqual(empty);
    }
    expect(await reports().listRecords({ ...filter, outcome: 'ended' })).toEqual(empty);
    expect(await reports().listRecords({ ...filter, model: 'rare', toMs: start })).toEqual(empty);
  });

  it('returns the matching records for any filter, bounds, limit and cursor', async () => {
    const { organizationId, keys, records } = await openHistory();
    const moment = fc.option(fc.integer({ min: start - dayMs, max: start + 210 * dayMs }));
    const filters = fc.record({
      keyId: fc.option(fc.constantFrom(...keys.map(({ keyId }) => keyId))),
      projectId: fc.option(fc.constantFrom(...keys.map(({ projectId }) => projectId)), { freq: 2 }),
      model: fc.option(fc.constantFrom(...models)),
      outcome: fc.option(fc.constantFrom(...outcomes), { freq: 2 }),
      fromMs: moment,
      toMs: moment,
      before: fc.option(fc.constantFrom(...records.map(({ id }) => id)), { freq: 1 }),
      limit: fc.constantFrom(1, 2, 7, 50, 500),
    });
    await fc.assert(
      fc.asyncProperty(filters, async (fields) => {
        const filter = { ...everything(organizationId), ...fields };
        const expected = matching(records, filter);
        const page = await reports().listRecords(filter);
        expect(page.records.map(({ id }) => id)).toEqual(expected.slice(0, filter.limit).map(({ id }) => id));
        expect(page.more).toBe(expected.length > filter.limit);
      }),
      { numRuns: 200 },
    );
  });

  it('continues the previous one without a gap until the end, also with a rare match', async () => {
    const { organizationId, records } = await openHistory();
    for (const fields of [{}, { model: 'rare' }, { outcome: 'failed' as const }]) {
      const filter = { ...everything(organizationId), ...fields, limit: 3 };
      const seen: string[] = [];
      for (;;) {
        const page = await reports().listRecords({ ...filter, before: seen.at(-1) ?? null });
        seen.push(...page.records.map(({ id }) => id));
        if (!page.more) break;
      }
      expect(seen).toEqual(matching(records, filter).map(({ id }) => id));
    }
  });
});
