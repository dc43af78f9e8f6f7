import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Author } from '#core/audit/audit.ts';
import { noteRun } from './run-audit.ts';
import type { ChangesParts } from './run-changes.ts';
import { namedRun, noticedColumns, type NoticedRow, type NoticeParts } from './run-notices.ts';
import type { ChangeResult, StartResult } from './run-requests.ts';
import { unfinishedStatuses } from './run-status.ts';
import type { Sealer } from './sources.ts';

/**
 * Drift: what an APPLIED run created was changed or deleted outside of Headgate. A drift check is a run of its own,
 * which refreshes Terraform's state and stores nothing of it. Checks and notices are found by the rows, so that several
 * gateways and restarts do each once.
 */

/** Drift checks that Headgate itself lets wait at once, across all clusters. */
const waitingMax = 20;

const unfinished = sql.join(
  unfinishedStatuses.map((status) => sql`${status}`),
  sql`, `,
);
/** SQL expression: the time from which the next check of run `r` is due. */
const since = sql`coalesce(r.drift_tried_at, r.ended_at)`;
const isDue = (hours: number) => sql`r.status = 'APPLIED' and r.check_drift
  and ${since} <= clock_timestamp() - make_interval(hours => ${hours})`;

export interface DriftJobParts {
  readonly db: Db;
  readonly sealer: Pick<Sealer, 'mark'>;
  readonly log: Log;
  /** Hours between two checks of a run; null: Headgate checks nothing by itself. */
  readonly driftHours: number | null;
}

/**
 * Requests a drift check for the runs that have waited longest for one: at most one for each cluster, and only where
 * nothing is pending or active. A run that fails here holds up no other, and is checked a period later.
 * @returns the number of requested checks
 * @throws AppError secrets_unavailable if this gateway cannot read the inputs of runs
 */
export async function checkDriftOfDue(
  { db, sealer, log, driftHours }: DriftJobParts,
  check: (runId: string) => Promise<StartResult>,
): Promise<number> {
  const ids = driftHours === null ? [] : await listDue(db, driftHours);
  if (ids.length > 0) await sealer.mark();
  let requested = 0;
  for (const id of ids) {
    try {
      const { kind } = await check(id);
      if (kind === 'created') requested += 1;
      // A full queue has room again soon. Anything else, such as an archived cluster, rarely changes within a day.
      else if (kind !== 'queue_full' && kind !== 'wrong_status') await markTried(db.orm, id);
    } catch (error) {
      log.warn({ err: error, runId: id }, 'a run could not be checked for drift; it is checked again a period later');
      await markTried(db.orm, id);
    }
  }
  return requested;
}

async function listDue(db: Db, hours: number): Promise<readonly string[]> {
  const rows = await db.orm.execute<{ id: string }>(sql`
    select id from (
      select distinct on (r.cluster_id) r.id, ${since} as since from runs r where ${isDue(hours)}
        and not exists (select from runs u where u.cluster_id = r.cluster_id and u.status in (${unfinished}))
      order by r.cluster_id, ${since}, r.id) due
    order by since, id
    limit greatest(0, ${waitingMax}
      - (select count(*) from runs p where p.status = 'PENDING' and p.drift_of is not null and p.origin = 'drift'))`);
  return rows.map(({ id }) => id);
}

async function markTried(orm: Pick<Transaction, 'execute'>, runId: string): Promise<void> {
  await orm.execute(sql`update runs set drift_tried_at = clock_timestamp() where id = ${runId} and status = 'APPLIED'`);
}

/**
 * Marks a run as checked in the transaction that has stored its drift check. The caller has the lock of the cluster's
 * runs.
 * @param hours for a check by Headgate itself, which must be due; null for any other check
 * @returns false if the run is no longer APPLIED, or its check is not due
 */
export async function markDriftChecked(tx: Transaction, runId: string, hours: number | null): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs r set drift_tried_at = clock_timestamp()
    where r.id = ${runId} and ${hours === null ? sql`r.status = 'APPLIED'` : isDue(hours)} returning r.id`);
  return rows.length > 0;
}

interface CheckRow extends Record<string, unknown> {
  readonly id: string;
  readonly drift_of: string;
  readonly is_completed: boolean;
  readonly changed: number;
  readonly deleted: number;
}

const checksAtOnce = 50;

/**
 * Reads the results of drift checks, and raises an alert for each run that has drifted since the check before. Checks
 * that failed or were canceled report nothing. @returns the number of alerts
 */
export async function notifyDrift(parts: NoticeParts): Promise<number> {
  for (let raised = 0; ;) {
    const { checks, alerts } = await parts.db.orm.transaction((tx) => notifySome(tx, parts));
    raised += alerts;
    if (checks < checksAtOnce) return raised;
  }
}

async function notifySome(
  tx: Transaction,
  parts: NoticeParts,
): Promise<{ readonly checks: number; readonly alerts: number }> {
  // Rows that another gateway works on are skipped.
  const rows = await tx.execute<CheckRow>(sql`
    select c.id, c.drift_of, c.status = 'PLANNED_AND_FINISHED' as is_completed,
      coalesce((c.planned ->> 'change')::int, 0) as changed, coalesce((c.planned ->> 'remove')::int, 0) as deleted
    from runs c where c.notified is distinct from 'end' and c.drift_of is not null and c.ended_at is not null
    order by c.id limit ${checksAtOnce} for update skip locked`);
  let alerts = 0;
  for (const row of rows) {
    await tx.execute(sql`update runs set notified = 'end' where id = ${row.id}`);
    if (row.is_completed && (await notifyOne(tx, parts, row))) alerts += 1;
  }
  return { checks: rows.length, alerts };
}

/** @returns true if an alert was raised */
async function notifyOne(tx: Transaction, { sources, raiseIn }: NoticeParts, check: CheckRow): Promise<boolean> {
  const { id, drift_of: runId, changed, deleted } = check;
  const isDrifted = changed + deleted > 0;
  const [run] = await tx.execute<NoticedRow>(sql`
    update runs r set drift_notified = ${isDrifted} from installations i
    where r.id = ${runId} and i.id = r.installation_id and r.status = 'APPLIED' and r.drift_notified <> ${isDrifted}
    returning ${noticedColumns}`);
  const cluster = run === undefined || !isDrifted ? null : await sources.cluster(run.cluster_id);
  // Nothing can be done about what is on an archived cluster.
  if (run === undefined || cluster === null) return false;
  const data = { ...(await namedRun(sources, run)), check_run_id: formatId('run', id), changed, deleted };
  await raiseIn(tx, { organizationId: cluster.organizationId, type: 'run.drifted', data });
  return true;
}

export interface DriftCheckChange {
  readonly runId: string;
  /** True: Headgate checks the run for drift by itself. */
  readonly checkDrift: boolean;
  readonly author: Author;
}

/** Changes whether Headgate checks an APPLIED run for drift by itself. */
export async function changeDriftCheck(
  { db, audit, sources, find }: ChangesParts,
  { runId, checkDrift, author }: DriftCheckChange,
): Promise<ChangeResult> {
  const run = await find(runId);
  if (run === null) return { kind: 'not_found' };
  const { organizationId } = (await sources.cluster(run.clusterId)) ?? run;
  const isChanged = await db.orm.transaction(async (tx) => {
    const rows = await tx.execute(sql`
      update runs set check_drift = ${checkDrift} where id = ${runId} and status = 'APPLIED' returning id`);
    if (rows.length === 0) return false;
    await noteRun(audit, tx, { ...run, organizationId }, { author, action: 'drift_check_changed', checkDrift });
    return true;
  });
  const now = (await find(runId)) ?? run;
  return isChanged ? { kind: 'changed', run: now } : { kind: 'wrong_status', status: now.status };
}
