import { afterAll, beforeAll } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { type Booking, createWallet, type Wallet } from '#core/wallet/wallet.ts';
import { createTestDatabase } from '../../support/database.ts';

export interface WalletBench {
  readonly db: Db;
  readonly wallet: Wallet;
  /** A second gateway on the same database, with connections of its own. */
  readonly otherDb: Db;
  readonly otherWallet: Wallet;
  /** Makes a wallet, credited when an amount is given. */
  openWallet(creditPicoUsd?: bigint): Promise<string>;
}

/** A wallet on a database of this test file's own, with a second gateway beside it. */
export function useWallet(): WalletBench {
  let bench: (WalletBench & { drop(): Promise<void> }) | null = null;

  beforeAll(async () => {
    const database = await createTestDatabase();
    const db = connectDb(database.url, { poolMax: 8 });
    const otherDb = connectDb(database.url, { poolMax: 8 });
    const audit = createAudit({ clock: systemClock });
    const wallet = createWallet({ db, clock: systemClock, audit });
    const otherWallet = createWallet({ db: otherDb, clock: systemClock, audit });
    bench = {
      db,
      wallet,
      otherDb,
      otherWallet,
      async openWallet(creditPicoUsd) {
        const organizationId = uuidv7();
        await db.orm.transaction((tx) => wallet.open(tx, organizationId));
        if (creditPicoUsd !== undefined) await wallet.credit(bookingOf(organizationId, creditPicoUsd, 'opening'));
        return organizationId;
      },
      async drop() {
        await Promise.all([db.close(), otherDb.close()]);
        await database.drop();
      },
    };
  });

  afterAll(() => bench?.drop());

  const opened = (): WalletBench => {
    if (bench === null) throw new Error('the database is opened before the tests, not while they are collected');
    return bench;
  };
  return {
    get db() {
      return opened().db;
    },
    get wallet() {
      return opened().wallet;
    },
    get otherDb() {
      return opened().otherDb;
    },
    get otherWallet() {
      return opened().otherWallet;
    },
    openWallet: (creditPicoUsd) => opened().openWallet(creditPicoUsd),
  };
}

export function bookingOf(organizationId: string, amountPicoUsd: bigint, reference: string): Booking {
  return { organizationId, amountPicoUsd, reference, note: null, author: systemAuthor };
}

/** All accounts of the whole ledger: what came in less what went out, by account and together. */
export async function sumAccounts(db: Db): Promise<Record<string, bigint>> {
  const rows = await db.sql<{ account: string; total: string }[]>`
    SELECT account, sum(amount) AS total FROM (
      SELECT credit_account AS account, amount FROM ledger_entries
      UNION ALL SELECT debit_account, -amount FROM ledger_entries
    ) AS sides GROUP BY account`;
  return Object.fromEntries(rows.map((row) => [row.account, BigInt(row.total)]));
}
