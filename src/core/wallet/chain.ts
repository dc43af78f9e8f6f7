import { createHash } from 'node:crypto';
import type { ledgerEntries } from './schema.ts';

/**
 * The chain that ties an organization's ledger entries together. Each entry's head is a SHA-256 over the previous head,
 * the entry's columns, its number and the balance after it. Altering, removing or adding an entry requires recomputing
 * every later head, up to the head in the wallet.
 *
 * This file computes the heads of credits and adjustments; charge.ts computes those of usage entries in SQL. Both do so
 * under the wallet's lock. The check recomputes all heads with this file.
 */

/** The columns of an entry that its head covers, without the balance. */
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

/** First line of the text that is hashed for an entry. A change of the hashed columns needs a new number. */
const format = 'headgate ledger entry 1';

const sha256 = (...parts: readonly (string | Buffer)[]): Buffer => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

/** Escapes line breaks of free text with JSON. Replaces lone surrogates with U+FFFD, as the database does. */
const quoted = (text: string | null): string => (text === null ? '' : JSON.stringify(text.toWellFormed()));

/** Returns the SHA-256 over an entry's columns, one per line; an absent column is an empty line. */
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

/** Columns of a usage entry as SQL expressions of type text. */
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

/** Returns the chain's head after an entry. @param balanceAfter pico-dollars */
export function nextHead(head: Buffer, hash: Buffer, number: number, balanceAfter: bigint): Buffer {
  const position = Buffer.alloc(8);
  position.writeBigInt64BE(BigInt(number));
  return sha256(head, hash, position, balanceAfter.toString());
}

/** `nextHead` as SQL; each parameter is an SQL expression of the column's type. */
export function nextHeadSql(head: string, hash: string, number: string, balanceAfter: string): string {
  return `sha256(${head} || ${hash} || int8send(${number}) || convert_to((${balanceAfter})::text, 'UTF8'))`;
}

/**
 * Returns the head that a chain starts from: it covers the entries from before the chain, none for a new wallet.
 * @param sumPicoUsd sum of these entries
 */
export function firstHead(organizationId: string, entries: number, sumPicoUsd: bigint): Buffer {
  return sha256(`${organizationId}\n${entries}\n${sumPicoUsd}\n`);
}

/**
 * `requests_hash` of a group, as SQL over rows with `request_id` and `amount`: SHA-256 over one line "id:amount" per
 * row.
 */
export const requestsHashSql =
  "sha256(convert_to(string_agg(request_id::text || ':' || amount::text || E'\\n', '' ORDER BY request_id), 'UTF8'))";
