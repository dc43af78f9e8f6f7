import { and, eq } from 'drizzle-orm';
import type { ISql, PendingQuery, Row } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Audit, AuditEntry, Author } from '#core/audit/audit.ts';
import { type ChargeBatch, chargeStatement } from './charge.ts';
import {
  applyChange,
  type BalanceChange,
  type BalanceChangeResult,
  type BalanceChangeType,
  insertWallet,
  type ReadHeld,
} from './credit.ts';
import { type LedgerPage, type LedgerPageRequest, readLedgerPage } from './ledger.ts';
import { type LedgerDay, type LedgerSpan, readLedgerDays, readLedgerSpan, type SpanRequest } from './ledger-span.ts';
import { type LedgerProof, proveLedger } from './proof.ts';
import { wallets } from './schema.ts';

export { type BookedParts, type ChargeBatch, type ChargedOrganization, isUncovered } from './charge.ts';
export type { BalanceChange, BalanceChangeResult, ReadHeld } from './credit.ts';
export {
  holdForJson,
  holdForStream,
  type HoldRefused,
  type HoldRequest,
  promptTokenPrice,
  STREAM_OUTPUT_TOKENS_AHEAD,
  type TokenPrice,
} from './hold-amounts.ts';
export type { LedgerEntry, LedgerPage, LedgerPageRequest } from './ledger.ts';
export type { LedgerDay, LedgerSpan } from './ledger-span.ts';
export { requestsHashSql } from './chain.ts';
export { type KnownHead, type LedgerProof, ledgerUsageSql, proveIn, readOwners } from './proof.ts';

/** An organization that is being opened. */
interface WalletOpening {
  readonly organization: { readonly id: string };
  /** True for the first organization of the installation. */
  readonly isFirst: boolean;
  readonly author: Author;
}

interface OpenedWallet {
  open(tx: Transaction, organizationId: string): Promise<void>;
  creditIn(tx: Transaction, change: BalanceChange): Promise<BalanceChangeResult>;
}

/** Ledger reference of the first start's credit; prevents a second credit. */
const firstCreditReference = 'bootstrap';

/**
 * Creates a wallet for each new organization, in the transaction that creates the organization. The first organization
 * also gets credit, to pay for the first requests.
 */
export function createWalletOpening(
  wallet: OpenedWallet,
  firstCreditPicoUsd: bigint,
): (tx: Transaction, opening: WalletOpening) => Promise<void> {
  return async (tx, { organization, isFirst, author }) => {
    await wallet.open(tx, organization.id);
    if (!isFirst || firstCreditPicoUsd === 0n) return;
    const credited = await wallet.creditIn(tx, {
      organizationId: organization.id,
      amountPicoUsd: firstCreditPicoUsd,
      reference: firstCreditReference,
      note: 'Initial credit',
      author,
    });
    if (credited.kind !== 'created') throw new Error(`the initial credit was not applied: ${credited.kind}`);
  };
}

/**
 * Tracks the organizations that have a booking in progress in this process. A balance read during a booking may or may
 * not include the booking; adding the bookings of `onCredit` to this balance would count one twice, or not at all.
 */
interface ChangeTracker {
  /** Counts the booking as running until the booking has ended and its listeners were called. */
  track<T>(organizationId: string, change: Promise<T>): Promise<T>;
  running(organizationId: string): boolean;
  /** Waits until all bookings that run now have ended, whether they succeed or fail. */
  settled(organizationId: string): Promise<void>;
}

function createChangeTracker(): ChangeTracker {
  const byOrganization = new Map<string, Set<Promise<unknown>>>();
  return {
    async track(organizationId, change) {
      const running = byOrganization.get(organizationId) ?? new Set();
      byOrganization.set(organizationId, running.add(change));
      try {
        return await change;
      } finally {
        running.delete(change);
        if (running.size === 0) byOrganization.delete(organizationId);
      }
    },
    running: (organizationId) => byOrganization.has(organizationId),
    async settled(organizationId) {
      const running = byOrganization.get(organizationId);
      if (running !== undefined) await Promise.allSettled(running);
    },
  };
}

/** Reads balances in pico-dollars by organization; an organization without a wallet has no entry. */
async function readBalances(sql: ISql, organizationIds: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
  const rows = await sql<{ organization_id: string; balance: string }[]>`
    SELECT organization_id::text, balance::text FROM wallets
    WHERE organization_id = ANY(${`{${organizationIds.join(',')}}`}::uuid[]) AND currency = 'USD'`;
  return new Map(rows.map((row) => [row.organization_id, BigInt(row.balance)]));
}

/** An organization's balance as a scalar SQL expression, for statements that read other rows in the same snapshot. */
function balanceSql(sql: ISql, organizationId: string) {
  return sql`(SELECT coalesce(max(balance), 0)::text FROM wallets
    WHERE organization_id = ${organizationId} AND currency = 'USD')`;
}

/**
 * Balances and the append-only ledger behind them. PostgreSQL is the source of truth: every change writes its entry and
 * the balance in one transaction, under the lock of the wallet's row. While PostgreSQL is unavailable, everything here
 * throws the driver's error; nothing is charged or credited from memory.
 */

/**
 * Called after the commit of every credit and adjustment, and of every charge without a hold. Credits and adjustments
 * return only after the listener has finished, so that the next request uses the new balance. A listener never rejects.
 */
export type CreditListener = (organizationId: string, deltaPicoUsd: bigint) => void | Promise<void>;

export interface Wallet {
  /** Creates the wallet of an organization, in the transaction that creates the organization. */
  open(tx: Transaction, organizationId: string): Promise<void>;
  /**
   * Returns the balance in pico-dollars; 0 for an organization without a wallet. If this wallet books at the same time,
   * the listeners of `onCredit` get the booking before this returns if the balance includes the booking, and after it
   * if not.
   */
  balance(organizationId: string): Promise<bigint>;
  /**
   * Adds money, once per organization and reference.
   * @throws RangeError for an amount that is not above zero
   */
  credit(change: BalanceChange): Promise<BalanceChangeResult>;
  /** Adds money in the transaction that creates an organization. Calls no listener: none tracks the new balance yet. */
  creditIn(tx: Transaction, change: BalanceChange): Promise<BalanceChangeResult>;
  /**
   * Corrects a balance up or down, once per organization and reference; never below the holds of requests. A request
   * that is admitted between reading the holds and the commit may find less than its hold: its charge then fails as
   * uncovered.
   * @throws RangeError for an amount of zero, and the errors of `readHeld`
   */
  adjust(change: BalanceChange, readHeld: ReadHeld): Promise<BalanceChangeResult>;
  /** Returns the statement that books and charges a batch of settled requests, see charge.ts. */
  chargeStatement(sql: ISql, batch: ChargeBatch): PendingQuery<Row[]>;
  /**
   * Applies a charge without a hold, and reports the charged amount to the listeners of `onCredit`.
   * @param charge books the charge, and returns the charged pico-dollars
   */
  chargeUnheld(organizationId: string, charge: () => Promise<bigint>): Promise<bigint>;
  /** Reads current balances in pico-dollars by organization; an organization without a wallet has no entry. */
  balances(sql: ISql, organizationIds: readonly string[]): Promise<ReadonlyMap<string, bigint>>;
  /**
   * The balance in pico-dollars as an SQL text expression, for statements that read other rows in the same snapshot.
   */
  balanceSql(sql: ISql, organizationId: string): PendingQuery<Row[]>;
  /** Returns an organization's entries, newest first. */
  ledger(organizationId: string, page: LedgerPageRequest): Promise<LedgerPage>;
  /**
   * Reads an organization's ledger for a span of time.
   * @param tx a transaction with one snapshot, which the caller can use for further reads
   */
  ledgerSpan(tx: ISql, request: SpanRequest): Promise<LedgerSpan>;
  /** Returns the last UTC days of an organization's ledger, oldest first, with today. */
  ledgerDays(organizationId: string, days: number): Promise<readonly LedgerDay[]>;
  /** Checks that the ledger is unaltered and equals the balance. Reads the whole ledger, so it is for audits only. */
  verify(organizationId: string): Promise<LedgerProof>;
  /** Adds a listener. @returns a function that removes it */
  onCredit(listener: CreditListener): () => void;
}

export interface WalletOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
}

export function createWallet({ db, clock, audit }: WalletOptions): Wallet {
  const listeners = new Set<CreditListener>();
  const changeTracker = createChangeTracker();
  const now = (): Date => new Date(clock.now());

  async function applyWithin(
    tx: Transaction,
    type: BalanceChangeType,
    change: BalanceChange,
    readHeld: ReadHeld = () => 0n,
  ): Promise<BalanceChangeResult> {
    if (change.amountPicoUsd === 0n || (type === 'credit' && change.amountPicoUsd < 0n)) {
      throw new RangeError(`a ${type} of ${change.amountPicoUsd} pico-dollars is not possible`);
    }
    const result = await applyChange(tx, change, { type, now: now(), readHeld });
    if (result.kind === 'created') await audit.record(tx, describeChange(change, result));
    return result;
  }

  async function applyInTransaction(
    type: BalanceChangeType,
    change: BalanceChange,
    readHeld?: ReadHeld,
  ): Promise<BalanceChangeResult> {
    const result = await db.orm.transaction(async (tx) => {
      const made = await applyWithin(tx, type, change, readHeld);
      if (made.kind === 'created') await change.author.created?.(tx, formatId('org', change.organizationId));
      return made;
    });
    if (result.kind === 'created') {
      const { organizationId, amountPicoUsd } = result.entry;
      await Promise.all([...listeners].map((listener) => Promise.resolve(listener(organizationId, amountPicoUsd))));
    }
    return result;
  }

  return {
    open: (tx, organizationId) => insertWallet(tx, organizationId, now()),
    async balance(organizationId) {
      for (;;) {
        await changeTracker.settled(organizationId);
        const balancePicoUsd = await readBalance(db, organizationId);
        if (!changeTracker.running(organizationId)) return balancePicoUsd;
      }
    },
    credit: (change) => changeTracker.track(change.organizationId, applyInTransaction('credit', change)),
    creditIn: (tx, change) => applyWithin(tx, 'credit', change),
    adjust: (change, readHeld) =>
      changeTracker.track(change.organizationId, applyInTransaction('adjustment', change, readHeld)),
    chargeStatement,
    chargeUnheld(organizationId, charge) {
      const charging = charge().then((chargedPicoUsd) => {
        for (const listener of listeners) void listener(organizationId, -chargedPicoUsd);
        return chargedPicoUsd;
      });
      return changeTracker.track(organizationId, charging);
    },
    balances: readBalances,
    balanceSql,
    ledger: (organizationId, page) => readLedgerPage(db, organizationId, page),
    ledgerSpan: readLedgerSpan,
    ledgerDays: (organizationId, days) => readLedgerDays(db, { organizationId, untilMs: clock.now(), days }),
    verify: (organizationId) => proveLedger(db, organizationId),
    onCredit(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

async function readBalance(db: Db, organizationId: string): Promise<bigint> {
  const [row] = await db.orm
    .select({ balance: wallets.balance })
    .from(wallets)
    .where(and(eq(wallets.organizationId, organizationId), eq(wallets.currency, 'USD')));
  return row?.balance ?? 0n;
}

function describeChange(
  change: BalanceChange,
  { entry }: Extract<BalanceChangeResult, { kind: 'created' | 'repeated' }>,
): AuditEntry {
  return {
    organizationId: entry.organizationId,
    author: change.author,
    action: entry.type === 'credit' ? 'wallet.credited' : 'wallet.adjusted',
    targetType: 'wallet',
    targetId: formatId('org', entry.organizationId),
    before: { balance: formatUsd(entry.balanceAfterPicoUsd - entry.amountPicoUsd) },
    after: {
      balance: formatUsd(entry.balanceAfterPicoUsd),
      amount: formatUsd(entry.amountPicoUsd),
      reference: entry.reference,
      note: entry.note,
      ledger_entry: formatId('le', entry.id),
    },
  };
}
