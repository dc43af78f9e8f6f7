import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { type ChainedEntry, entryHash, firstHead, nextHead } from './chain.ts';

/** Result of checking an organization's ledger. */
export interface LedgerProof {
  readonly organizationId: string;
  /** True if everything is correct: sums, running sums, numbers, the chain, and the resulting wallet. */
  readonly balanced: boolean;
  readonly balancePicoUsd: bigint;
  readonly sumPicoUsd: bigint;
  /** Sum of usage entries. */
  readonly usagePicoUsd: bigint;
  readonly entries: number;
  /** Entries whose `balance_after` is not the running sum. */
  readonly entriesBroken: number;
  /** Id of the first altered entry and the problem found; null if no entry was altered. */
  readonly altered: { readonly id: string; readonly problem: LedgerProblem } | null;
  /** Head of the chain, recomputed from the entries. */
  readonly head: Buffer;
  /**
   * Comparison with an earlier, known head: `cut_off` if the ledger has fewer entries than then, `rewritten` if the
   * entries differ; null if no head was known, or the ledger continues from the known head.
   */
  readonly continuity: 'cut_off' | 'rewritten' | null;
  /** Problem of the wallet, compared with the entries. */
  readonly wallet: 'no_wallet' | 'balance' | 'entries_missing' | 'head' | null;
}

/**
 * Problems of an entry:
 * - `number`: entries before it are missing, or it exists twice
 * - `head`: the entry differs from what was booked, or an entry before it was removed
 * - `balance_after`: not the running sum, before the chain
 * - `chain_broken_off`: the entry is not in the chain, but entries before it are
 * - `no_number`: an amount or time is not a number, such as `NaN` or `infinity`
 * - `before_chain`: the chain's first entry does not continue from the entries before it, so they were altered
 */
export type LedgerProblem = 'number' | 'head' | 'balance_after' | 'chain_broken_off' | 'no_number' | 'before_chain';

/** Head of a ledger at an earlier time, stored outside the ledger. */
export interface KnownHead {
  readonly entries: number;
  readonly head: Buffer;
}

interface Row {
  readonly number: string;
  readonly organization_id: string;
  readonly id: string;
  readonly type: ChainedEntry['type'];
  readonly debit_account: ChainedEntry['debitAccount'];
  readonly credit_account: ChainedEntry['creditAccount'];
  readonly amount: string;
  readonly currency: string;
  readonly balance_after: string;
  readonly created_at_micros: string | null;
  readonly requests: number | null;
  readonly group_id: string | null;
  readonly requests_hash: Buffer | null;
  readonly head: Buffer | null;
  readonly request_id: string | null;
  readonly reference: string | null;
  readonly note: string | null;
}

/**
 * A row whose numbers are valid. PostgreSQL's numeric allows NaN and Infinity, which somebody with write access could
 * store.
 */
interface ReadableRow extends Row {
  readonly created_at_micros: string;
}

const isWhole = (text: string): boolean => /^-?\d+$/.test(text);

function isReadable(row: Row): row is ReadableRow {
  return isWhole(row.amount) && isWhole(row.balance_after) && row.created_at_micros !== null;
}

interface WalletRow {
  readonly balance: string;
  readonly entries: string;
  readonly head: Buffer;
}

/** Rows per read; bounds the memory. */
const rowsAtOnce = 1000;

/** Checks an organization's whole ledger and its wallet, in one snapshot and with bounded memory. */
export function proveLedger(db: Db, organizationId: string): Promise<LedgerProof> {
  return db.sql.begin('isolation level repeatable read read only', (tx) => proveIn(tx, organizationId));
}

/** Checks the ledger as `proveLedger` does, in a transaction that sees one snapshot. */
export async function proveIn(sql: ISql, organizationId: string, known: KnownHead | null = null): Promise<LedgerProof> {
  const check = new LedgerCheck(organizationId, known);
  const rows = sql<Row[]>`
    SELECT number::text, organization_id::text, id::text, type, debit_account, credit_account, amount::text, currency,
      balance_after::text, CASE WHEN isfinite(created_at) THEN (extract(epoch FROM created_at) * 1000000)::bigint::text END
        AS created_at_micros, requests,
      group_id::text, requests_hash, head, request_id::text, reference, note
    FROM ledger_entries e WHERE organization_id = ${organizationId} ORDER BY e.number`.cursor(rowsAtOnce);
  for await (const some of rows) for (const row of some) check.add(row);
  const [wallet] = await sql<WalletRow[]>`
    SELECT balance::text, entries::text, head FROM wallets
    WHERE organization_id = ${organizationId} AND currency = 'USD'`;
  return check.end(wallet);
}

/** Yields all organizations that have a wallet or entries, in id order. */
export async function* readOwners(sql: ISql): AsyncGenerator<string> {
  const rows = sql<{ organization_id: string }[]>`
    SELECT organization_id::text FROM wallets UNION SELECT organization_id::text FROM (
      WITH RECURSIVE owners AS (
        (SELECT organization_id FROM ledger_entries ORDER BY organization_id LIMIT 1)
        UNION ALL SELECT (SELECT e.organization_id FROM ledger_entries e WHERE e.organization_id > o.organization_id
          ORDER BY e.organization_id LIMIT 1) FROM owners o WHERE o.organization_id IS NOT NULL
      ) SELECT organization_id FROM owners WHERE organization_id IS NOT NULL
    ) AS named ORDER BY 1`.cursor(rowsAtOnce);
  for await (const some of rows) for (const row of some) yield row.organization_id;
}

/**
 * Usage entries as a part of a WITH clause, for comparing them with their requests: `ledger_usage (organization_id, id,
 * request_id, group_id, requests, amount, requests_hash)`, where `request_id` is the entry's only request, or the first
 * of its group.
 */
export const ledgerUsageSql = `ledger_usage AS (
    SELECT organization_id, id, coalesce(request_id, id) AS request_id, group_id, requests, amount, requests_hash
    FROM ledger_entries WHERE type = 'usage')`;

class LedgerCheck {
  readonly #organizationId: string;
  readonly #known: KnownHead | null;
  #isKnownReached = false;
  #continuity: LedgerProof['continuity'] = null;
  #entries = 0;
  #sum = 0n;
  #usage = 0n;
  #broken = 0;
  #altered: LedgerProof['altered'] = null;
  /** Null before the chain begins. */
  #head: Buffer | null = null;

  constructor(organizationId: string, known: KnownHead | null) {
    this.#organizationId = organizationId;
    this.#known = known;
    this.#compareWithKnown();
  }

  add(row: Row): void {
    const problem = isReadable(row) ? this.#addReadable(row) : 'no_number';
    if (problem !== null) this.#altered ??= { id: row.id, problem };
    this.#entries = Number(row.number);
    // Continues from the stored head, so that one altered entry does not make all later entries look altered.
    this.#head = row.head ?? this.#head;
    this.#compareWithKnown();
  }

  #addReadable(row: ReadableRow): LedgerProblem | null {
    const amount = BigInt(row.amount);
    const sumBefore = this.#sum;
    this.#sum += row.credit_account === 'wallet' ? amount : -amount;
    if (row.type === 'usage') this.#usage += amount;
    const isBroken = BigInt(row.balance_after) !== this.#sum;
    if (isBroken) this.#broken += 1;
    return this.#problem(row, sumBefore) ?? (isBroken ? 'balance_after' : null);
  }

  #headNow(): Buffer {
    return this.#head ?? firstHead(this.#organizationId, this.#entries, this.#sum);
  }

  #compareWithKnown(): void {
    if (this.#known?.entries !== this.#entries) return;
    this.#isKnownReached = true;
    if (!this.#known.head.equals(this.#headNow())) this.#continuity = 'rewritten';
  }

  #problem(row: ReadableRow, sumBefore: bigint): LedgerProblem | null {
    const number = Number(row.number);
    if (number !== this.#entries + 1) return 'number';
    if (row.head === null) return this.#head === null ? null : 'chain_broken_off';
    const before = this.#head ?? firstHead(this.#organizationId, this.#entries, sumBefore);
    const head = nextHead(before, entryHash(toChained(row)), number, BigInt(row.balance_after));
    if (row.head.equals(head)) return null;
    return this.#head === null && this.#entries > 0 ? 'before_chain' : 'head';
  }

  end(wallet: WalletRow | undefined): LedgerProof {
    const balancePicoUsd = wallet !== undefined && isWhole(wallet.balance) ? BigInt(wallet.balance) : 0n;
    const atFault = this.#walletProblem(wallet);
    return {
      organizationId: this.#organizationId,
      balanced: atFault === null && this.#altered === null,
      balancePicoUsd,
      sumPicoUsd: this.#sum,
      usagePicoUsd: this.#usage,
      entries: this.#entries,
      entriesBroken: this.#broken,
      altered: this.#altered,
      head: this.#headNow(),
      continuity: this.#known === null || this.#isKnownReached ? this.#continuity : 'cut_off',
      wallet: atFault,
    };
  }

  #walletProblem(wallet: WalletRow | undefined): LedgerProof['wallet'] {
    if (wallet === undefined) return this.#entries === 0 ? null : 'no_wallet';
    if (!isWhole(wallet.balance) || BigInt(wallet.balance) !== this.#sum) return 'balance';
    if (Number(wallet.entries) !== this.#entries) return 'entries_missing';
    return wallet.head.equals(this.#headNow()) ? null : 'head';
  }
}

function toChained(row: ReadableRow): ChainedEntry {
  return {
    id: row.id,
    organizationId: row.organization_id,
    type: row.type,
    debitAccount: row.debit_account,
    creditAccount: row.credit_account,
    amount: BigInt(row.amount),
    currency: row.currency,
    createdAtMicros: BigInt(row.created_at_micros),
    requests: row.requests,
    groupId: row.group_id === null ? null : Number(row.group_id),
    requestsHash: row.requests_hash,
    requestId: row.request_id,
    reference: row.reference,
    note: row.note,
  };
}
