import { and, eq } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import type { Author } from '#core/audit/audit.ts';
import { entryHash, firstHead, nextHead } from './chain.ts';
import { type LedgerEntry, toLedgerEntry } from './ledger.ts';
import { ledgerEntries, wallets } from './schema.ts';

/** A change of a balance that a person decided on. */
export interface BalanceChange {
  readonly organizationId: string;
  /** Credits are above zero; adjustments are signed and not zero. */
  readonly amountPicoUsd: bigint;
  /** The caller's own id of the booking, unique in the organization: a repeated booking changes nothing. */
  readonly reference: string;
  readonly note: string | null;
  readonly author: Author;
}

/** Reads the pico-dollars that requests hold of an organization's balance. */
export type ReadHeld = (organizationId: string) => bigint | Promise<bigint>;

export type BalanceChangeType = 'credit' | 'adjustment';

export type BalanceChangeResult =
  | { readonly kind: 'created' | 'repeated'; readonly entry: LedgerEntry }
  /** The reference was used for another amount or another type. */
  | { readonly kind: 'conflict'; readonly entry: LedgerEntry }
  /** The adjustment would take the balance below what requests hold of it. */
  | { readonly kind: 'insufficient'; readonly balancePicoUsd: bigint; readonly heldPicoUsd: bigint }
  | { readonly kind: 'unknown_organization' };

const usdWallet = (organizationId: string) =>
  and(eq(wallets.organizationId, organizationId), eq(wallets.currency, 'USD'));

/** Creates the wallet of a new organization; a second call changes nothing. */
export async function insertWallet(tx: Transaction, organizationId: string, now: Date): Promise<void> {
  await tx
    .insert(wallets)
    .values({
      organizationId,
      currency: 'USD',
      balance: 0n,
      updatedAt: now,
      entries: 0,
      head: firstHead(organizationId, 0, 0n),
    })
    .onConflictDoNothing();
}

export interface ChangeTerms {
  readonly type: BalanceChangeType;
  readonly now: Date;
  /** Called under the wallet's lock, for bookings that lower the balance. */
  readonly readHeld: ReadHeld;
}

/**
 * Applies a credit or an adjustment in the caller's transaction. The wallet's row is locked before the reference is
 * looked up, so that exactly one of several parallel calls with the same reference is applied.
 */
export async function applyChange(
  tx: Transaction,
  change: BalanceChange,
  terms: ChangeTerms,
): Promise<BalanceChangeResult> {
  const { organizationId, amountPicoUsd } = change;
  const { type, now, readHeld } = terms;
  const [wallet] = await tx.select().from(wallets).where(usdWallet(organizationId)).for('update');
  if (wallet === undefined) return { kind: 'unknown_organization' };
  const [earlier] = await tx
    .select()
    .from(ledgerEntries)
    .where(and(eq(ledgerEntries.organizationId, organizationId), eq(ledgerEntries.reference, change.reference)));
  if (earlier !== undefined) {
    const entry = toLedgerEntry(earlier);
    const same = entry.type === type && entry.amountPicoUsd === amountPicoUsd;
    return { kind: same ? 'repeated' : 'conflict', entry };
  }
  const balance = wallet.balance + amountPicoUsd;
  const heldPicoUsd = amountPicoUsd < 0n ? await readHeld(organizationId) : 0n;
  if (balance < heldPicoUsd) return { kind: 'insufficient', balancePicoUsd: wallet.balance, heldPicoUsd };
  const row = chained(toRow(type, change, now), wallet, balance);
  const { number: entries, head } = row;
  await tx.update(wallets).set({ balance, updatedAt: now, entries, head }).where(usdWallet(organizationId));
  await tx.insert(ledgerEntries).values(row);
  return { kind: 'created', entry: toLedgerEntry(row) };
}

/** Returns the entry as the next in the wallet's chain. */
function chained(row: UnchainedRow, wallet: typeof wallets.$inferSelect, balanceAfter: bigint) {
  const number = wallet.entries + 1;
  const hash = entryHash({ ...row, createdAtMicros: BigInt(row.createdAt.getTime()) * 1000n });
  return { ...row, number, balanceAfter, head: nextHead(wallet.head, hash, number, balanceAfter) };
}

type UnchainedRow = Omit<typeof ledgerEntries.$inferSelect, 'number' | 'balanceAfter' | 'head'>;

function toRow(type: BalanceChangeType, change: BalanceChange, now: Date): UnchainedRow {
  const counterpart = type === 'credit' ? 'funding' : 'adjustments';
  const incoming = change.amountPicoUsd > 0n;
  return {
    id: uuidv7(now.getTime()),
    organizationId: change.organizationId,
    type,
    debitAccount: incoming ? counterpart : 'wallet',
    creditAccount: incoming ? 'wallet' : counterpart,
    amount: incoming ? change.amountPicoUsd : -change.amountPicoUsd,
    currency: 'USD',
    groupId: null,
    requests: null,
    requestsHash: null,
    requestId: null,
    reference: change.reference,
    note: change.note,
    createdAt: now,
  };
}
