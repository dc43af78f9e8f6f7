import { and, eq, isNotNull, isNull, ne } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { formatUsd } from '#base/money.ts';
import { organizations } from './schema.ts';

/** A balance below its limit. Amounts are USD as displayed. */
export interface LowBalance {
  readonly organizationId: string;
  readonly balance: string;
  readonly lowBalance: string;
}

export interface LowBalancesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns current balances in pico-dollars by organization. */
  readonly balances: (organizationIds: readonly string[]) => Promise<ReadonlyMap<string, bigint>>;
  /** Raises the alert, in the transaction that records the notification. */
  readonly raiseIn: (tx: Transaction, low: LowBalance) => Promise<void>;
}

export interface LowBalances {
  /** Raises an alert for each organization whose balance is below its `lowBalance`, once until the balance recovers. */
  scan(): Promise<void>;
}

type Watched = Pick<typeof organizations.$inferSelect, 'id' | 'lowBalanceToldAt'> & { readonly lowBalance: bigint };

export function createLowBalances({ db, clock, log, balances, raiseIn }: LowBalancesOptions): LowBalances {
  return {
    async scan() {
      const watched = await readWatched(db);
      if (watched.length === 0) return;
      const known = await balances(watched.map(({ id }) => id));
      for (const one of watched) {
        const balance = known.get(one.id) ?? 0n;
        const isLow = balance < one.lowBalance;
        if (isLow === (one.lowBalanceToldAt !== null)) continue;
        await db.orm.transaction(async (tx) => {
          const isNoted = await note(tx, one, isLow ? new Date(clock.now()) : null);
          if (!isNoted || !isLow) return;
          const amounts = { balance: formatUsd(balance), lowBalance: formatUsd(one.lowBalance) };
          log.warn(
            { organizationId: formatId('org', one.id), ...amounts },
            'the wallet of an organization is below its alert threshold; requests that cost more than the balance are rejected',
          );
          await raiseIn(tx, { organizationId: one.id, ...amounts });
        });
      }
    },
  };
}

async function readWatched(db: Db): Promise<readonly Watched[]> {
  const { id, lowBalance, lowBalanceToldAt } = organizations;
  const rows = await db.orm
    .select({ id, lowBalance, lowBalanceToldAt })
    .from(organizations)
    .where(and(isNotNull(lowBalance), ne(organizations.status, 'closed')));
  return rows.flatMap((row) => (row.lowBalance === null ? [] : [{ ...row, lowBalance: row.lowBalance }]));
}

/** Records the notification. False if another amount was set in the meantime; the next check handles it. */
async function note(
  tx: Transaction,
  { id, lowBalance, lowBalanceToldAt }: Watched,
  toldAt: Date | null,
): Promise<boolean> {
  const isAsRead = lowBalanceToldAt === null ? isNull : isNotNull;
  const noted = await tx
    .update(organizations)
    .set({ lowBalanceToldAt: toldAt })
    .where(
      and(eq(organizations.id, id), eq(organizations.lowBalance, lowBalance), isAsRead(organizations.lowBalanceToldAt)),
    )
    .returning({ id: organizations.id });
  return noted.length > 0;
}
