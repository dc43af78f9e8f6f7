import { afterAll, beforeAll } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createWriter, type UsageRecord, type Writer } from '#core/metering/metering.ts';
import { type BalanceChange, createWallet, type Wallet } from '#core/wallet/wallet.ts';
import { createTestDatabase } from '#test/database.ts';

export interface WalletBench {
  readonly url: string;
  readonly db: Db;
  readonly wallet: Wallet;
  /** Books and charges records. */
  readonly writer: Writer;
  /** A second gateway on the same database, with connections of its own. */
  readonly otherDb: Db;
  readonly otherWallet: Wallet;
  readonly otherWriter: Writer;
  /** Makes a wallet, credited when an amount is given. */
  openWallet(creditPicoUsd?: bigint): Promise<string>;
}

/** For adjustments of wallets without running requests. */
export const nothingHeld = (): bigint => 0n;

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
      url: database.url,
      db,
      wallet,
      writer: createWriter({ db, clock: systemClock, wallet }),
      otherDb,
      otherWallet,
      otherWriter: createWriter({ db: otherDb, clock: systemClock, wallet: otherWallet }),
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
    get url() {
      return opened().url;
    },
    get writer() {
      return opened().writer;
    },
    get otherWriter() {
      return opened().otherWriter;
    },
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

export function bookingOf(organizationId: string, amountPicoUsd: bigint, reference: string): BalanceChange {
  return { organizationId, amountPicoUsd, reference, note: null, author: systemAuthor };
}

/** A request that costs this much; what a test does not name is of no account to it. */
export function chargeOf(organizationId: string, costPicoUsd: bigint, fields: Partial<UsageRecord> = {}): UsageRecord {
  return {
    id: uuidv7(),
    organizationId,
    projectId: organizationId,
    keyId: organizationId,
    model: 'small',
    endpoint: '/v1/chat/completions',
    stream: false,
    serviceTier: 'default',
    status: 200,
    outcome: 'completed',
    reason: null,
    cacheHit: false,
    usage: { inputTokens: 10, cachedTokens: 4, cacheWriteTokens: 0, outputTokens: 5, reasoningTokens: 2 },
    usageSource: 'engine',
    costPicoUsd,
    writtenOffPicoUsd: 0n,
    priceVersionId: organizationId,
    queuedMs: 1,
    firstByteMs: 20,
    totalMs: 30,
    clientRequestId: null,
    ...fields,
  };
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
