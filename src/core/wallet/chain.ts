import { createHash } from 'node:crypto';
import type { ledgerEntries } from './schema.ts';

/**
 * The chain that ties an organization's ledger entries together: each entry's head is a SHA-256 over the head before
 * it, what the entry says, its number and the balance after it. Who alters, removes or adds an entry has to make every
 * later head anew, up to the one that the wallet keeps.
 *
 * Heads are made here for credits and adjustments and by charge.ts in SQL for usage, always under the wallet's lock;
 * the check makes them here.
 */

/** What a head covers beside the balance, as the columns of an entry. */
export type ChainedEntry = Pick<
  typeof ledgerEntries.$inferSelect,
  | 'id'
  | 'organizationId'
  | 'type'
  | 'debitAccount'
  | 'creditAccount'
  | 'amount'
  | 'currency'
  | 'requests'
  | 'groupId'
  | 'requestsHash'
  | 'requestId'
  | 'reference'
  | 'note'
> & {
  /** Microseconds since the Unix epoch. */
  readonly createdAtMicros: bigint;
};

/** Begins what is hashed of an entry; another content has another number. */
const format = 'headgate ledger entry 1';

const sha256 = (...parts: readonly (string | Buffer)[]): Buffer => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

/** JSON keeps line ends of free text out of the lines; half of a surrogate pair is what the database makes of it. */
const quoted = (text: string | null): string => (text === null ? '' : JSON.stringify(text.toWellFormed()));

/** SHA-256 over an entry's columns, one a line, an absent one an empty line. */
export function entryHash(entry: ChainedEntry): Buffer {
  const lines = [
    format,
    entry.id,
    entry.organizationId,
    entry.type,
    entry.debitAccount,
    entry.creditAccount,
    entry.amount,
    entry.currency,
    entry.createdAtMicros,
    entry.requests ?? '',
    entry.groupId ?? '',
    entry.requestsHash?.toString('hex') ?? '',
    entry.requestId ?? '',
    quoted(entry.reference),
    quoted(entry.note),
  ];
  return sha256(lines.map((line) => `${line}\n`).join(''));
}

/** Columns of a usage entry as SQL that yields text. */
export interface UsageEntrySql {
  readonly id: string;
  readonly organizationId: string;
  readonly amount: string;
  readonly createdAtMicros: string;
  readonly requests: string;
  /** May be null. */
  readonly groupId: string;
  /** Hexadecimal; may be null. */
  readonly requestsHash: string;
}

/** `entryHash` of a usage entry as SQL. */
export function usageEntryHashSql(columns: UsageEntrySql): string {
  const { id, organizationId, amount, createdAtMicros, requests, groupId, requestsHash } = columns;
  return `sha256(convert_to('${format}' || E'\\n' || ${id} || E'\\n' || ${organizationId}
      || E'\\nusage\\nwallet\\nrevenue\\n' || ${amount} || E'\\nUSD\\n' || ${createdAtMicros} || E'\\n' || ${requests}
      || E'\\n' || coalesce(${groupId}, '') || E'\\n' || coalesce(${requestsHash}, '') || E'\\n\\n\\n\\n', 'UTF8'))`;
}

/** The head once an entry counted. @param balanceAfter pico-dollars */
export function nextHead(head: Buffer, hash: Buffer, number: number, balanceAfter: bigint): Buffer {
  const position = Buffer.alloc(8);
  position.writeBigInt64BE(BigInt(number));
  return sha256(head, hash, position, balanceAfter.toString());
}

/** `nextHead` as SQL; each parameter is an expression of its own type. */
export function nextHeadSql(head: string, hash: string, number: string, balanceAfter: string): string {
  return `sha256(${head} || ${hash} || int8send(${number}) || convert_to((${balanceAfter})::text, 'UTF8'))`;
}

/**
 * The head that a chain begins with: over the entries that were there before it, none for a new wallet.
 * @param sumPicoUsd what these entries come to
 */
export function firstHead(organizationId: string, entries: number, sumPicoUsd: bigint): Buffer {
  return sha256(`${organizationId}\n${entries}\n${sumPicoUsd}\n`);
}

/** `requests_hash` of a group as SQL over rows with `request_id` and `amount`: SHA-256 over a line "id:amount" each. */
export const requestsHashSql =
  "sha256(convert_to(string_agg(request_id::text || ':' || amount::text || E'\\n', '' ORDER BY request_id), 'UTF8'))";
