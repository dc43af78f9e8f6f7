import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createBudgetCache, createBudgets } from '#core/budgets/budgets.ts';
import { createSpendingReports } from '#core/metering/reports/spent.ts';
import { useWallet } from '#test/wallet/test-wallet.ts';

const log = createLog('silent');
const usd = 10n ** 12n;

describe('changes of budgets', () => {
  const bench = useWallet();
  type Spent = ReturnType<typeof createSpendingReports>['spentOf'];

  function open(spent: Spent) {
    const { db } = bench;
    const clock = systemClock;
    const cache = createBudgetCache({ db, clock, log });
    return createBudgets({ db, clock, audit: createAudit({ clock }), spent, cache, onChanged: () => cache.load() });
  }

  const fields = {
    scope: { type: 'project', id: randomUUID() },
    period: 'total',
    mode: 'hard',
    models: null,
    amountPicoUsd: usd,
    openingPicoUsd: 0n,
    alertPercents: [],
  } as const;

  it('need one connection each, so that a hundred creations at once do not wait for each other', async () => {
    const spending = createSpendingReports(bench.db);
    const budgets = open((...asked) => spending.spentOf(...asked));
    const creations = Array.from({ length: 100 }, () =>
      budgets.create({ ...fields, organizationId: randomUUID() }, systemAuthor),
    );
    expect(await Promise.all(creations)).toHaveLength(100);
  });

  it('keep what the later of two simultaneous resets read', async () => {
    const organizationId = randomUUID();
    const answers: ((picoUsd: readonly bigint[]) => void)[] = [];
    const spent: Spent = () => new Promise((resolve) => answers.push(resolve));
    const made = await open(() => Promise.resolve([0n])).create({ ...fields, organizationId }, systemAuthor);
    const budgets = open(spent);
    const first = budgets.reset(made, systemAuthor);
    await expect.poll(() => answers.length).toBe(1);
    const second = budgets.reset(made, systemAuthor);
    await expect.poll(() => answers.length).toBe(2);
    answers[1]?.([5n * usd]);
    expect((await second)?.forgiven?.picoUsd).toBe(5n * usd);
    answers[0]?.([3n * usd]);
    expect((await first)?.forgiven?.picoUsd).toBe(5n * usd);
  });
});
