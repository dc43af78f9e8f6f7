import { AsyncLocalStorage } from 'node:async_hooks';
import { sql as query } from 'drizzle-orm';
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import type { Sql } from 'postgres';
import { within } from '#base/within.ts';
import { sqlStateOf } from './errors.ts';

/** The connection was lost during a COMMIT, and the outcome of the transaction is unknown. */
export class CommitUnknownError extends Error {
  constructor(cause: unknown) {
    super('the database did not confirm whether the transaction was committed', { cause });
    this.name = 'CommitUnknownError';
  }
}

/** The changes that one request makes. */
export interface Change {
  /** At least one transaction of the request has written something and is committed. */
  isCommitted: boolean;
}

const changes = new AsyncLocalStorage<Change>();

/** Runs work that may change data; `change` shows during and after the work whether it did. */
export function duringChange<T>(change: Change, run: () => Promise<T>): Promise<T> {
  return changes.run(change, run);
}

type Transact = PostgresJsDatabase['transaction'];

/** Milliseconds after which a COMMIT counts as sent on a lost connection; normally it takes a few milliseconds. */
const silentMs = 2000;
/** Milliseconds for which PostgreSQL is asked for the outcome of a transaction. */
const askedMsMax = 4000;
const askAgainMs = 100;

/** A transaction whose COMMIT is sent: its result and number, and the start time of the server that gave the number. */
interface Closing<T> {
  readonly result: T;
  /** Null where the transaction has written nothing. */
  readonly id: string | null;
  readonly server: string;
}

/**
 * Makes the outcome of transactions known. If the answer to COMMIT is lost, another connection asks PostgreSQL for the
 * outcome (`pg_xact_status`): a committed transaction succeeds, any other fails as before. A transaction's number is
 * only valid for one run of one server: after a failover another transaction may have the number.
 * @throws CommitUnknownError, from the transaction, if PostgreSQL does not know the outcome in time
 */
export function withKnownCommits(transact: Transact, sql: Sql): Transact {
  return async (run, config) => {
    if (config?.accessMode === 'read only') return transact(run, config);
    const { promise: closing, resolve: close } = Promise.withResolvers<Closing<Awaited<ReturnType<typeof run>>>>();
    const ended = transact(async (tx) => {
      const result = await run(tx);
      const [mark] = await tx.execute<{ id: string | null; server: string }>(
        query`select pg_current_xact_id_if_assigned()::text as id, pg_postmaster_start_time()::text as server`,
      );
      close({ result, id: mark?.id ?? null, server: mark?.server ?? '' });
      return result;
    }, config);
    return committed(sql, ended, closing);
  };
}

/** @param closing resolves when COMMIT is sent; never if it is not sent */
async function committed<T>(sql: Sql, ended: Promise<T>, closing: Promise<Closing<T>>): Promise<T> {
  const end = ended.then(
    () => null,
    (error: unknown) => ({ error }),
  );
  const mark = await Promise.race([closing, end]);
  if (mark !== null && 'error' in mark) throw mark.error;
  const { result, id, server } = await closing;
  if (id === null) return ended;
  const failed = await within(end, silentMs, () => 'silent' as const);
  if (failed !== null) await requireCommitted(failed, await statusOf(sql, { id, server }), end);
  const change = changes.getStore();
  if (change !== undefined) change.isCommitted = true;
  return result;
}

type Status = 'committed' | 'aborted' | 'unknown';
type Failed = { readonly error: unknown };

/** @throws the transaction's error if it was not committed; CommitUnknownError if the outcome is unknown */
async function requireCommitted(failed: Failed | 'silent', status: Status, end: Promise<Failed | null>): Promise<void> {
  if (status === 'committed') return;
  const ended = failed === 'silent' ? await end : failed;
  if (ended === null) return;
  // PostgreSQL rejected the COMMIT, or reports that the transaction was not committed.
  if (status === 'aborted' || sqlStateOf(ended.error) !== null) throw ended.error;
  throw new CommitUnknownError(ended.error);
}

async function statusOf(sql: Sql, { id, server }: { readonly id: string; readonly server: string }): Promise<Status> {
  const endsMs = performance.now() + askedMsMax;
  while (performance.now() < endsMs) {
    const asked = sql<{ status: string | null }[]>`
      select case when pg_postmaster_start_time()::text = ${server} then pg_xact_status(${id}::text::xid8) end as status`;
    const answer = await within(
      asked.catch(() => null),
      endsMs - performance.now(),
      () => null,
    );
    const status = answer?.[0]?.status;
    if (status === 'committed' || status === 'aborted') return status;
    // Another server, or an older run of this one: it does not know the number.
    if (status === null) return 'unknown';
    await new Promise((resolve) => setTimeout(resolve, askAgainMs));
  }
  return 'unknown';
}
