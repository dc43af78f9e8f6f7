import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import {
  type BudgetAlert,
  type BudgetWatch,
  createBudgetBook,
  createBudgets,
  createBudgetWatch,
} from '#core/budgets/budgets.ts';
import { createSpendingReports } from '#core/metering/spent.ts';
import { eventually } from '../../edge/inference/inference-gateway.ts';
import { chargeOf, useWallet } from '../wallet/test-wallet.ts';

const log = createLog('silent');
const usd = 10n ** 12n;

describe('what budgets come to', () => {
  const bench = useWallet();

  function open() {
    const { db } = bench;
    const alerts: BudgetAlert[] = [];
    const spending = createSpendingReports(db);
    const book = createBudgetBook({ db, log });
    const audit = createAudit({ clock: systemClock });
    const budgets = createBudgets({ db, clock: systemClock, audit, book, onChanged: () => book.load() });
    const watch = createBudgetWatch({
      db,
      clock: systemClock,
      log,
      spent: (...asked) => spending.spentOf(...asked),
      users: (...asked) => spending.usersWith(...asked),
      raiseIn: (_, alert) => Promise.resolve(void alerts.push(alert)),
    });
    /** Of end users; null for each of them. */
    const make = (organizationId: string, id: string | null, mode: 'hard' | 'soft', percents: readonly number[] = []) =>
      budgets.create(
        {
          organizationId,
          scope: { type: 'user', id },
          period: 'monthly',
          mode,
          amountPicoUsd: usd,
          alertPercents: percents,
        },
        systemAuthor,
      );
    const refuse = async (organizationId: string, user: string): Promise<void> => {
      const spender = { organizationId, keyId: uuidv7(), projectId: uuidv7(), user };
      const [budget] = book.of(spender, uuidv7());
      if (budget === undefined) throw new Error(`no hard budget holds for ${user}`);
      watch.refused(budget);
      await eventually(async () => {
        const [row] =
          await db.sql`select 1 from budget_alerts where budget_id = ${budget.budgetId} and end_user = ${user}`;
        return row ?? null;
      });
    };
    const told = async (looking: BudgetWatch = watch): Promise<string[]> => {
      await looking.look();
      return alerts.splice(0).map(({ data }) => `${data.mode} ${data.scope_id} ${data.percent} ${data.spent}`);
    };
    return { make, refuse, told };
  }

  it('is told of a refusal by the budget of each user where somebody has a soft one of his own', async () => {
    const organizationId = await bench.openWallet(usd);
    const { make, refuse, told } = open();
    await make(organizationId, null, 'hard');
    await make(organizationId, 'anna', 'soft', [50]);
    await refuse(organizationId, 'anna');
    expect(await told()).toEqual(['hard anna 100 0']);
    expect(await told()).toEqual([]);
  });

  it('is told of each user by a soft budget of his own, and not by that of each, also where that tells nothing', async () => {
    const organizationId = await bench.openWallet(10n * usd);
    const { make, told } = open();
    await make(organizationId, null, 'soft', [100]);
    await make(organizationId, 'anna', 'soft');
    await make(organizationId, 'otto', 'soft', [50]);
    const records = ['anna', 'otto', 'eva'].map((endUser) => chargeOf(organizationId, usd, { endUser }));
    await bench.writer.write(records);
    expect((await told()).toSorted()).toEqual(['soft eva 100 1', 'soft otto 50 1']);
  });

  it('is told of every end user, however many there are, and of one who was refused with what he spent', async () => {
    const organizationId = await bench.openWallet(10_000n * usd);
    const { make, refuse, told } = open();
    await make(organizationId, null, 'hard', [80]);
    const count = 1203;
    const records = Array.from({ length: count }, (_, n) => chargeOf(organizationId, usd, { endUser: `user ${n}` }));
    await bench.writer.write([...records, chargeOf(organizationId, usd / 4n, { endUser: 'refused' })]);
    await refuse(organizationId, 'refused');
    const all = await told();
    expect(new Set(all).size).toBe(all.length);
    expect(all).toHaveLength(count + 1);
    expect(all).toContain('hard refused 100 0.25');
    expect(await told()).toEqual([]);
  });
});
