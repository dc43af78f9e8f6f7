import { sqlStateOf } from '#base/database/database.ts';
import { UnknownOwnerError } from '#core/metering/tables/tables.ts';

/**
 * Class of a batch's error.
 * - `conflict`: another transaction was preferred; the same batch succeeds when it is tried again.
 * - `blocked`: something that the batch needs is locked, or was too slow; others need not wait for it.
 * - `data`: Postgres rejects a value.
 * - `refused`: Postgres answered with another error; most of these are trouble of the database, not of the records.
 * - `away`: no answer from Postgres.
 */
export type CommitError = 'conflict' | 'blocked' | 'data' | 'refused' | 'away';

/** Maximum number of tries for which a duplicate row counts as a conflict with another writer of the same record. */
const uniqueTriesMax = 3;

/**
 * Classifies an error. Only errors that are known to be the records' own fault are `data`; unexpected ones are retried.
 * Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
 * @param tries of this batch, this one included
 */
export function classify(error: unknown, tries: number): CommitError {
  if (error instanceof UnknownOwnerError) return 'data';
  const state = sqlStateOf(error);
  if (state === null) return 'away';
  // Serialization failure, deadlock.
  if (state === '40001' || state === '40P01') return 'conflict';
  // Two gateways write one record at the same moment: the next try finds it.
  if (state === '23505' && tries <= uniqueTriesMax) return 'conflict';
  // Lock not available, query canceled: these connections have a `lock_timeout` and a `statement_timeout`.
  if (state === '55P03' || state === '57014') return 'blocked';
  if (state.startsWith('22') || state.startsWith('23')) return 'data';
  return 'refused';
}
