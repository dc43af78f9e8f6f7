import { sqlStateOf } from '#base/db.ts';
import { UnknownOwnerError } from './codes.ts';

/**
 * What the error of a batch says of its records.
 * - `conflict`: another transaction was preferred; the same batch goes through when it is tried again.
 * - `blocked`: something that it needs is locked, or was too slow; others need not wait for it.
 * - `data`: what Postgres says of a value that it cannot take.
 * - `refused`: Postgres answered, and said something else; most of it is the database's trouble, not the records'.
 * - `away`: no answer of Postgres.
 */
export type CommitError = 'conflict' | 'blocked' | 'data' | 'refused' | 'away';

/** So often is a row that is there already taken for that of somebody who writes the same. */
const uniqueTriesMax = 3;

/**
 * Only what is known to be the records' own fault is taken for it: everything that nobody thought of is tried again.
 * Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
 * @param tries of this batch, this one included
 */
export function classify(error: unknown, tries: number): CommitError {
  if (error instanceof UnknownOwnerError) return 'data';
  const state = sqlStateOf(error);
  if (state === null) return 'away';
  // Serialization failure, deadlock.
  if (state === '40001' || state === '40P01') return 'conflict';
  // Two gateways that write one record at the same moment: the repetition finds it.
  if (state === '23505' && tries <= uniqueTriesMax) return 'conflict';
  // Lock not available, query cancelled: the books' connections have a `lock_timeout` and a `statement_timeout`.
  if (state === '55P03' || state === '57014') return 'blocked';
  if (state.startsWith('22') || state.startsWith('23')) return 'data';
  return 'refused';
}
