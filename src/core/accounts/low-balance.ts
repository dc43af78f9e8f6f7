import { and, eq, isNotNull, isNull, ne } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { formatUsd } from '#base/money.ts';
import { organizations } from './schema.ts';

/** Amounts are USD as they are shown. */
export interface LowBalance {
  readonly organizationId: string;
  readonly balance: string;
  readonly lowBalance: string;
}

export interface LowBalancesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** Pico-dollars by organization as they are just now. */
  readonly balances: (organizationIds: readonly string[]) => Promise<ReadonlyMap<string, bigint>>;
  /** Has those told who are to be, in the transaction that notes it. */
  readonly raiseIn: (tx: Transaction, low: LowBalance) => Promise<void>;
}

export interface LowBalances {
  /** Raises that the balance of an organization is below its `lowBalance`, once until it is not. */
  look(): Promise<void>;
}

type Watched = Pick<typeof organizations.$inferSelect, 'id' | 'lowBalanceToldAt'> & { readonly lowBalance: bigint };

export function createLowBalances({ db, clock, log, balances, raiseIn }: LowBalancesOptions): LowBalances {
  return {
    async look() {
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
          log.warn({ organizationId: formatId('org', one.id), ...amounts }, 'the balance of an organization is low');
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

/** False where another amount was set meanwhile, which is looked at anew. */
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
