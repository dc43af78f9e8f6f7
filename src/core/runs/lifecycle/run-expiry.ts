import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import type { Author } from '#core/audit/audit.ts';
import type { ChangesParts } from './run-changes.ts';
import { noteRun } from './run-audit.ts';
import { namedRun, noticedColumns, type NoticedRow, type NoticeParts } from './run-notices.ts';
import type { ChangeResult, StartResult } from './run-requests.ts';
import { expiresAt, isRemoving, lockRuns, queueMax } from './run-rows.ts';
import { unfinishedStatuses } from './run-status.ts';

/**
 * The life of what a run has applied. Only the run that is APPLIED has a life: it ends with the run that supersedes the
 * applied one, and with a destroy. Each step is found by the rows, under a lock, so that several gateways and restarts
 * do it once.
 */

/** Seconds for which a run can ask that its resources exist: one minute to ten years. */
export const [lifeSecondsMin, lifeSecondsMax] = [60, 315_360_000] as const;

/** Hours after which the removal of expired resources is tried again, if the destroy failed or was canceled. */
const expiryAgainHours = 24;

const expiring = sql.raw(`r.status = 'APPLIED' and (r.expires_after is not null or r.expires_at is not null)`);
const expiry = sql.raw(expiresAt);
/** The notice is sent a day before the expiry, or a quarter of the life if that is shorter. */
const isNoticeDue = sql`${expiring} and not r.expiry_notified
  and clock_timestamp() >= ${expiry} - least(interval '24 hours', (${expiry} - r.ended_at) / 4)`;
/** Nothing is destroyed without its notice, also after an outage over the time of the notice. */
const isDue = sql`${expiring} and r.expiry_notified and ${expiry} <= clock_timestamp() and (r.expiry_tried_at is null
  or r.expiry_tried_at <= clock_timestamp() - make_interval(hours => ${expiryAgainHours}))`;
const unfinished = sql.join(
  unfinishedStatuses.map((status) => sql`${status}`),
  sql`, `,
);
/** SQL condition: the destroy waits for run `u`. A drift check lets the destroy pass. */
const isOther = sql`u.status in (${unfinished}) and u.drift_of is null`;
const atOnce = 50;

/** Announces resources that will be destroyed, each once for each expiry. @returns the number of notices */
export async function notifyExpiring(parts: NoticeParts): Promise<number> {
  for (let raised = 0; ;) {
    const count = await parts.db.orm.transaction(async (tx) => {
      const rows = await tx.execute<NoticedRow & { readonly expires_ms: number }>(sql`
        select ${noticedColumns}, floor(extract(epoch from ${expiry}) * 1000)::float8 as expires_ms
        from runs r join installations i on i.id = r.installation_id
        where ${isNoticeDue} order by r.id limit ${atOnce} for update of r skip locked`);
      for (const row of rows) {
        await tx.execute(sql`update runs set expiry_notified = true where id = ${row.id}`);
        const cluster = await parts.sources.cluster(row.cluster_id);
        // Nothing is destroyed on an archived cluster.
        if (cluster === null) continue;
        const data = { ...(await namedRun(parts.sources, row)), expires_at: new Date(row.expires_ms).toISOString() };
        await parts.raiseIn(tx, { organizationId: cluster.organizationId, type: 'run.expiring', data });
      }
      return rows.length;
    });
    raised += count;
    if (count < atOnce) return raised;
  }
}

/** Ids are UUIDs: this is the least one. */
const firstId = '00000000-0000-0000-0000-000000000000';

/**
 * Requests a destroy for each expired run whose installation has no pending or active run. A run that fails here holds up
 * no other, and is tried again by the next call.
 * @returns the number of requested runs
 */
export async function destroyExpired(
  { db, log }: Pick<NoticeParts, 'db'> & { readonly log: Log },
  destroy: (runId: string) => Promise<StartResult>,
): Promise<number> {
  let requested = 0;
  const failures: unknown[] = [];
  for (let after = firstId; ;) {
    const ids = await listDue(db, after);
    for (const id of ids) {
      const isRequested = await destroyOne(db, id, destroy).catch((error: unknown) => {
        failures.push(error);
        return false;
      });
      if (isRequested) requested += 1;
    }
    after = ids.at(-1) ?? after;
    if (ids.length < atOnce) break;
  }
  if (failures.length > 0) {
    log.warn({ err: failures[0], runs: failures.length }, 'expired runs could not be destroyed; they are tried again');
  }
  return requested;
}

async function listDue(db: Db, after: string): Promise<readonly string[]> {
  const rows = await db.orm.execute<{ id: string }>(sql`
    select r.id from runs r where ${isDue} and r.id > ${after}
      and not exists (
        select from runs u where u.installation_id = r.installation_id and ${isOther})
      and (select count(*) from runs q where q.cluster_id = r.cluster_id and q.status = 'PENDING' and q.drift_of is null) < ${queueMax}
    order by r.id limit ${atOnce}`);
  return rows.map(({ id }) => id);
}

async function destroyOne(db: Db, id: string, destroy: (runId: string) => Promise<StartResult>): Promise<boolean> {
  const { kind } = await destroy(id);
  // A full queue has room again soon. Anything else, such as an archived cluster, rarely changes within a day.
  if (kind !== 'created' && kind !== 'queue_full' && kind !== 'wrong_status') {
    await db.orm.execute(sql`update runs set expiry_tried_at = clock_timestamp() where id = ${id}`);
  }
  return kind === 'created';
}

/**
 * Marks a run as expired in the transaction that has stored its destroy. The caller has the lock of the cluster's runs.
 * @returns false if the run has not expired, or if another run of its installation is pending or active
 */
export async function markExpired(tx: Transaction, runId: string, destroyId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs r set expiry_tried_at = clock_timestamp() where r.id = ${runId} and ${isDue} and not exists (
      select from runs u
      where u.installation_id = r.installation_id and u.id <> ${destroyId} and ${isOther})
    returning r.id`);
  return rows.length > 0;
}

export interface ExpiryChange {
  readonly runId: string;
  /** Milliseconds since the Unix epoch; null: never. */
  readonly expiresAtMs: number | null;
  readonly author: Author;
}

/** @throws AppError invalid_value */
async function requireFuture(tx: Transaction, at: string): Promise<void> {
  const rows = await tx.execute(sql`
    select 1 where ${at}::timestamptz > clock_timestamp()
      and ${at}::timestamptz <= clock_timestamp() + make_interval(secs => ${lifeSecondsMax})`);
  if (rows.length > 0) return;
  throw new AppError('invalid_value', {
    message: 'expires_at must be in the future, and at most ten years ahead.',
    param: 'expires_at',
  });
}

/**
 * Changes when the resources of an APPLIED run are destroyed, unless their destroy is pending or active.
 * @throws AppError invalid_value for a time in the past, or too far ahead
 */
export async function changeExpiry(
  { db, audit, sources, find }: ChangesParts,
  { runId, expiresAtMs, author }: ExpiryChange,
): Promise<ChangeResult> {
  const run = await find(runId);
  if (run === null) return { kind: 'not_found' };
  const { organizationId } = (await sources.cluster(run.clusterId)) ?? run;
  const at = expiresAtMs === null ? null : new Date(expiresAtMs).toISOString();
  const isChanged = await db.orm.transaction(async (tx) => {
    await lockRuns(tx, run.clusterId);
    if (at !== null) await requireFuture(tx, at);
    const rows = await tx.execute(sql`
      update runs r set expires_after = null, expires_at = ${at}::timestamptz, expiry_notified = false, expiry_tried_at = null
      where r.id = ${runId} and r.status = 'APPLIED' and not exists (
        select from runs d where d.installation_id = r.installation_id and ${sql.raw(isRemoving)}
          and d.status in (${unfinished}))
      returning r.id`);
    if (rows.length === 0) return false;
    await noteRun(audit, tx, { ...run, organizationId }, { author, action: 'expiry_changed', expiresAt: at });
    return true;
  });
  const now = (await find(runId)) ?? run;
  if (isChanged) return { kind: 'changed', run: now };
  return now.status === 'APPLIED' ? { kind: 'being_destroyed' } : { kind: 'wrong_status', status: now.status };
}
