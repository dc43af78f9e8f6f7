import { and, eq } from 'drizzle-orm';
import type { ISql, PendingQuery, Row } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { formatUsd } from '#base/money.ts';
import { type Charge, chargeStatement } from './charge.ts';
import { book, type Booking, type BookingResult, type BookingType, insertWallet } from './credit.ts';
import { type LedgerPage, type LedgerPageRequest, type LedgerProof, proveLedger, readLedgerPage } from './ledger.ts';
import { wallets } from './schema.ts';

/**
 * Balances and the append-only ledger behind them. Postgres is the truth: every change writes its entry and the
 * balance in one transaction, under the lock of the wallet's row. While Postgres is away everything here throws the
 * driver's error; nothing is charged or credited from memory.
 */

export type { Charge } from './charge.ts';
export type { Booking, BookingResult, WalletActor } from './credit.ts';
export type { HoldRefused, HoldRequest, JsonHold, StreamHold, TokenPrice } from './holds.ts';
export { holdForJson, holdForStream, STREAM_OUTPUT_TOKENS_AHEAD } from './holds.ts';
export type { LedgerEntry, LedgerEntryType, LedgerPage, LedgerPageRequest, LedgerProof } from './ledger.ts';

/** The part of the audit that a booking needs: a row in the booking's own transaction. */
export interface WalletAudit {
  record(tx: Transaction, change: WalletChange): Promise<void>;
}

export interface WalletChange {
  readonly organizationId: string;
  readonly actor: { readonly userId: string | null; readonly keyId: string | null };
  readonly action: string;
  readonly targetType: string;
  readonly targetId: string;
  readonly before: Readonly<Record<string, string>>;
  readonly after: Readonly<Record<string, string | null>>;
  readonly requestId: string | null;
}

/** Told of every credit and adjustment once it is committed. */
export type CreditListener = (organizationId: string, deltaPicoUsd: bigint) => void;

export interface Wallet {
  /** Makes the wallet of an organization in the transaction that makes the organization. */
  open(tx: Transaction, organizationId: string): Promise<void>;
  /** Pico-dollars; 0 for an organization that has no wallet. */
  balance(organizationId: string): Promise<bigint>;
  /**
   * Adds money, once per organization and reference.
   * @throws RangeError for an amount that is not above zero
   */
  credit(booking: Booking): Promise<BookingResult>;
  /** The same inside a transaction of the caller's, who calls `announce` once it is committed. */
  creditWithin(tx: Transaction, booking: Booking): Promise<BookingResult>;
  /** Tells the listeners of a booking made by `creditWithin`; repetitions and refusals are nobody's news. */
  announce(result: BookingResult): void;
  /**
   * Corrects a balance up or down, once per organization and reference; never below zero.
   * @throws RangeError for an amount of zero
   */
  adjust(booking: Booking): Promise<BookingResult>;
  /** The one statement that charges a batch of settled requests, see charge.ts; run it last in the transaction. */
  chargeStatement(sql: ISql, charges: readonly Charge[]): PendingQuery<Row[]>;
  /** An organization's entries, newest first. */
  ledger(organizationId: string, page: LedgerPageRequest): Promise<LedgerPage>;
  /** Whether the balance is what the ledger adds up to; reads the whole ledger, so it is for audits. */
  verify(organizationId: string): Promise<LedgerProof>;
  /** @returns a function that ends the subscription */
  onCredit(listener: CreditListener): () => void;
}

export interface WalletOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit?: WalletAudit;
}

export function createWallet({ db, clock, audit }: WalletOptions): Wallet {
  const listeners = new Set<CreditListener>();
  const now = (): Date => new Date(clock.now());

  async function bookWithin(tx: Transaction, type: BookingType, booking: Booking): Promise<BookingResult> {
    if (booking.amountPicoUsd === 0n || (type === 'credit' && booking.amountPicoUsd < 0n)) {
      throw new RangeError(`a ${type} of ${booking.amountPicoUsd} pico-dollars`);
    }
    const result = await book(tx, type, booking, now());
    if (result.kind === 'created') await audit?.record(tx, describeChange(booking, result));
    return result;
  }

  function announce(result: BookingResult): void {
    if (result.kind !== 'created') return;
    for (const listener of listeners) listener(result.entry.organizationId, result.entry.amountPicoUsd);
  }

  async function bookAlone(type: BookingType, booking: Booking): Promise<BookingResult> {
    const result = await db.orm.transaction((tx) => bookWithin(tx, type, booking));
    announce(result);
    return result;
  }

  return {
    open: (tx, organizationId) => insertWallet(tx, organizationId, now()),
    balance: (organizationId) => readBalance(db, organizationId),
    credit: (booking) => bookAlone('credit', booking),
    creditWithin: (tx, booking) => bookWithin(tx, 'credit', booking),
    announce,
    adjust: (booking) => bookAlone('adjustment', booking),
    chargeStatement: (sql, charges) => chargeStatement(sql, charges, now()),
    ledger: (organizationId, page) => readLedgerPage(db, organizationId, page),
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
  booking: Booking,
  result: Extract<BookingResult, { kind: 'created' | 'repeated' }>,
): WalletChange {
  const { entry } = result;
  return {
    organizationId: entry.organizationId,
    actor: { userId: booking.actor.userId, keyId: booking.actor.keyId },
    action: `wallet.${entry.type}`,
    targetType: 'ledger_entry',
    targetId: entry.id,
    before: { balance: formatUsd(entry.balanceAfterPicoUsd - entry.amountPicoUsd) },
    after: {
      balance: formatUsd(entry.balanceAfterPicoUsd),
      amount: formatUsd(entry.amountPicoUsd),
      reference: entry.reference,
      note: entry.note,
    },
    requestId: booking.actor.requestId,
  };
}
