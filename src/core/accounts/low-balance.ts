import { and, eq, isNotNull, isNull, ne } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Log } from '#base/log.ts';
import { readAdminAddresses } from './admin-addresses.ts';
import type { Letters } from './letters.ts';
import { organizations } from './schema.ts';

export interface LowBalancesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly letters: Pick<Letters, 'sendLowBalance'>;
  /** Pico-dollars by organization as they are just now. */
  readonly balances: (organizationIds: readonly string[]) => Promise<ReadonlyMap<string, bigint>>;
}

export interface LowBalances {
  /**
   * Tells those who administer an organization that its balance is below its `lowBalance`, once until it is not. That
   * it was told is noted after the mail server has the letters: who is killed between leaves it to be told again.
   */
  look(): Promise<void>;
}

type Watched = Pick<typeof organizations.$inferSelect, 'id' | 'name' | 'lowBalanceToldAt'> & {
  readonly lowBalance: bigint;
};

/** Where no letter could be sent, the next try waits for so long. */
const retryMs = 300_000;

export function createLowBalances(options: LowBalancesOptions): LowBalances {
  const { db, clock, balances } = options;
  const retryAt = new Map<string, number>();
  return {
    async look() {
      const watched = await readWatched(db);
      if (watched.length === 0) return;
      const known = await balances(watched.map(({ id }) => id));
      for (const one of watched) {
        const balance = known.get(one.id) ?? 0n;
        const isLow = balance < one.lowBalance;
        if (isLow === (one.lowBalanceToldAt !== null)) continue;
        if (!isLow) await note(db, one, null);
        else if ((retryAt.get(one.id) ?? 0) <= clock.now()) {
          const isTold = await tell(options, one, balance);
          if (isTold) await note(db, one, new Date(clock.now()));
          if (isTold) retryAt.delete(one.id);
          else retryAt.set(one.id, clock.now() + retryMs);
        }
      }
    },
  };
}

async function readWatched(db: Db): Promise<readonly Watched[]> {
  const { id, name, lowBalance, lowBalanceToldAt } = organizations;
  const rows = await db.orm
    .select({ id, name, lowBalance, lowBalanceToldAt })
    .from(organizations)
    .where(and(isNotNull(lowBalance), ne(organizations.status, 'closed')));
  return rows.flatMap((row) => (row.lowBalance === null ? [] : [{ ...row, lowBalance: row.lowBalance }]));
}

/** Another amount that was set meanwhile is looked at anew. */
async function note(db: Db, { id, lowBalance, lowBalanceToldAt }: Watched, toldAt: Date | null): Promise<void> {
  const isAsRead = lowBalanceToldAt === null ? isNull : isNotNull;
  await db.orm
    .update(organizations)
    .set({ lowBalanceToldAt: toldAt })
    .where(
      and(eq(organizations.id, id), eq(organizations.lowBalance, lowBalance), isAsRead(organizations.lowBalanceToldAt)),
    );
}

/** @returns false where there were letters to send, and the mail server took none */
async function tell({ db, log, letters }: LowBalancesOptions, one: Watched, balance: bigint): Promise<boolean> {
  const amounts = { balance: formatUsd(balance), lowBalance: formatUsd(one.lowBalance) };
  log.warn({ organizationId: formatId('org', one.id), ...amounts }, 'the balance of an organization is low');
  const addresses = await readAdminAddresses(db, one.id);
  const sent = await Promise.allSettled(
    addresses.map((email) => letters.sendLowBalance({ email, organizationName: one.name, ...amounts })),
  );
  return sent.length === 0 || sent.some(({ status }) => status === 'fulfilled');
}
