import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import {
  type BudgetAlert,
  type BudgetWatch,
  createBudgetCache,
  createBudgets,
  createBudgetWatch,
  periodOf,
} from '#core/budgets/budgets.ts';
import type { UsageRecord } from '#core/metering/metering.ts';
import { createSpendingReports } from '#core/metering/reports/spent.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { chargeOf, useWallet } from '#test/wallet/test-wallet.ts';

const log = createLog('silent');
const usd = 10n ** 12n;

/** All happens in its midst, whenever the tests run: it does not end, and none that has just ended is looked at. */
const month = periodOf('monthly', Date.now());
const midMs = (month.fromMs + month.toMs) / 2;

const spentBy = (organizationId: string, picoUsd: bigint, endUser: string, acceptedMs = midMs): UsageRecord =>
  chargeOf(organizationId, picoUsd, { id: uuidv7(acceptedMs), endUser });

describe('the budget watch', () => {
  const bench = useWallet();

  /** @param nowMs by the gateway's clock */
  function open(nowMs = () => midMs) {
    const { db } = bench;
    const alerts: BudgetAlert[] = [];
    /** Spenders that the ledger was asked about. */
    const asked: string[] = [];
    const clock = { ...systemClock, now: nowMs };
    const spending = createSpendingReports(db);
    const cache = createBudgetCache({ db, clock, log });
    const audit = createAudit({ clock: systemClock });
    const spent = (...question: Parameters<typeof spending.spentOf>) => spending.spentOf(...question);
    const budgets = createBudgets({ db, clock: systemClock, audit, spent, cache, onChanged: () => cache.load() });
    const watch = createBudgetWatch({
      db,
      clock,
      log,
      async spent(...question) {
        asked.push(...question[1].map(({ id }) => id));
        return spending.spentOf(...question);
      },
      users: (...question) => spending.usersWith(...question),
      countUsers: (...question) => spending.countUsersWith(...question),
      raiseIn: (_, alert) => Promise.resolve(void alerts.push(alert)),
    });
    /** Creates a budget for end users; null for each of them. */
    const make = (organizationId: string, id: string | null, mode: 'hard' | 'soft', percents: readonly number[] = []) =>
      budgets.create(
        {
          organizationId,
          scope: { type: 'user', id },
          period: 'monthly',
          mode,
          models: null,
          openingPicoUsd: 0n,
          amountPicoUsd: usd,
          alertPercents: percents,
        },
        systemAuthor,
      );
    const refuse = async (organizationId: string, user: string): Promise<void> => {
      const spender = { organizationId, keyId: uuidv7(), projectId: uuidv7(), user };
      const [budget] = cache.of(spender, uuidv7(midMs), 'chat');
      if (budget === undefined) throw new Error(`no hard budget holds for ${user}`);
      watch.refused(budget);
      await eventually(async () => {
        const [row] =
          await db.sql`select 1 from budget_alerts where budget_id = ${budget.budgetId} and end_user = ${user}`;
        return row ?? null;
      });
    };
    const told = async (looking: BudgetWatch = watch): Promise<string[]> => {
      await looking.scan();
      return alerts.splice(0).map(({ type, data }) => {
        if (type === 'budget.many_users')
          return `${data.alerts} told, ${data.end_users} users, ${String(data.is_over)}`;
        return `${data.mode} ${data.scope_id} ${data.percent} ${data.spent}`;
      });
    };
    return { make, refuse, told, asked, book: cache, watch };
  }

  it('reports a rejection by the budget of each user also for a user with a soft budget of their own', async () => {
    const organizationId = await bench.openWallet(usd);
    const { make, refuse, told } = open();
    await make(organizationId, null, 'hard');
    await make(organizationId, 'anna', 'soft', [50]);
    await refuse(organizationId, 'anna');
    expect(await told()).toEqual(['hard anna 100 0']);
    expect(await told()).toEqual([]);
  });

  it('reports a user with a soft budget of their own by that budget only, also when it has no thresholds', async () => {
    const organizationId = await bench.openWallet(10n * usd);
    const { make, told } = open();
    await make(organizationId, null, 'soft', [100]);
    await make(organizationId, 'anna', 'soft');
    await make(organizationId, 'otto', 'soft', [50]);
    const records = ['anna', 'otto', 'eva'].map((endUser) => spentBy(organizationId, usd, endUser));
    await bench.writer.write(records);
    expect((await told()).toSorted()).toEqual(['soft eva 100 1', 'soft otto 50 1']);
  });

  it('reports 100 end users, highest spending first, then their number: once, and when the period is over', async () => {
    const organizationId = await bench.openWallet(10_000n * usd);
    const { make, refuse, told } = open();
    await make(organizationId, null, 'hard', [80]);
    const records = Array.from({ length: 1203 }, (_, n) => spentBy(organizationId, usd + BigInt(n), `user ${n}`));
    await bench.writer.write([...records, spentBy(organizationId, usd / 4n, 'refused')]);
    await refuse(organizationId, 'refused');
    const all = await told();
    const most = Array.from({ length: 99 }, (_, n) => `user ${1202 - n}`);
    expect(all.slice(0, -1).map((one) => one.replace(/^hard (.*) \d+ [\d.]+$/, '$1'))).toEqual(['refused', ...most]);
    expect(all[0]).toBe('hard refused 100 0.25');
    expect(all.at(-1)).toBe('100 told, 1203 users, false');
    expect(await told()).toEqual([]);
    await bench.writer.write([spentBy(organizationId, 5n * usd, 'another')]);
    expect([await told(), await open().told()]).toEqual([[], []]);
    const whenOver = (): number => month.toMs + 60_000;
    const after = open(whenOver);
    expect(await after.told()).toEqual(['100 told, 1204 users, true']);
    expect([await after.told(), await open(whenOver).told()]).toEqual([[], []]);
  });

  it('reports a budget during a check in which the period ends', async () => {
    const organizationId = await bench.openWallet(10n * usd);
    let ms = month.toMs - 2;
    const { make, told } = open(() => (ms += 1));
    await make(organizationId, 'at the end', 'soft', [100]);
    await bench.writer.write([spentBy(organizationId, usd, 'at the end', month.toMs - 1000)]);
    expect(await told()).toContain('soft at the end 100 1');
  });

  it('reports every end user while they are few, at each threshold', async () => {
    const organizationId = await bench.openWallet(10_000n * usd);
    const { make, told } = open();
    await make(organizationId, null, 'soft', [50, 100]);
    const spend = (count: number, from: number): Promise<unknown> =>
      bench.writer.write(
        Array.from({ length: count }, (_, n) => spentBy(organizationId, usd / 2n, `user ${from + n}`)),
      );
    await spend(50, 0);
    expect(await told()).toHaveLength(50);
    await spend(49, 0);
    // By another gateway, which knows what the first one has told.
    expect(await open().told()).toHaveLength(49);
    await spend(3, 50);
    expect((await told()).map((one) => one.replace(/^soft user \d+/, ''))).toEqual([
      ' 50 0.5',
      '100 told, 53 users, false',
    ]);
    expect(await told()).toEqual([]);
  });

  it('does not query budgets again whose alerts are all sent', async () => {
    const organizationId = await bench.openWallet(10_000n * usd);
    const { make, refuse, told, asked } = open();
    await make(organizationId, 'spent', 'soft', [50, 100]);
    await make(organizationId, 'stopped', 'hard');
    await make(organizationId, 'waits', 'soft', [50]);
    await bench.writer.write([spentBy(organizationId, usd, 'spent')]);
    await refuse(organizationId, 'stopped');
    const ofOurs = (): string[] => asked.splice(0).filter((id) => ['spent', 'stopped', 'waits'].includes(id));
    expect(await told()).toHaveLength(3);
    expect(ofOurs().toSorted()).toEqual(['spent', 'stopped', 'waits']);
    expect(await told()).toEqual([]);
    expect(ofOurs()).toEqual(['waits']);
  });

  it('keeps about 1000 rejections of made-up end users', async () => {
    const organizationId = await bench.openWallet(usd);
    const { make, book: cache, watch, told } = open();
    await make(organizationId, null, 'hard');
    for (let n = 0; n < 1100; n += 1) {
      const [budget] = cache.of(
        { organizationId, keyId: uuidv7(), projectId: uuidv7(), user: `made up ${n}` },
        uuidv7(midMs),
        'chat',
      );
      if (budget === undefined) throw new Error('no hard budget holds');
      watch.refused(budget);
    }
    const noted = async (): Promise<number> => {
      const [row] = await bench.db.sql<{ noted: number }[]>`
        select count(*)::int as noted from budget_alerts where end_user like 'made up %'`;
      return row?.noted ?? 0;
    };
    await expect.poll(noted).toBeGreaterThanOrEqual(1000);
    expect((await told()).at(-1)).toBe('100 told, 0 users, false');
    // A few more, for those that were under way at once.
    expect(await noted()).toBeLessThan(1100);
    expect(await told()).toEqual([]);
  });
});
