import { type SQL, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { type Noted, noteRun } from './run-audit.ts';
import type { ChangeResult } from './run-requests.ts';
import { releaseForgotten } from './release-versions.ts';
import { isOvertaken, lockRuns, type Run } from './run-rows.ts';
import type { RunSources } from './sources.ts';
import {
  clusterArchived,
  idleStatuses,
  organizationInactive,
  type RunStatus,
  statusesBefore,
  unfinishedStatuses,
} from './run-status.ts';

/** Changes of existing runs. */
export interface Changes {
  /** Cancels a run. A pending run is CANCELED at once; an active one ends as soon as Terraform lets it. */
  cancel(runId: string, author: Author): Promise<ChangeResult>;
  /** Lets a run apply the plan that waits for it, as the next run of its cluster. */
  confirm(runId: string, author: Author): Promise<ChangeResult>;
  /** Ends a run whose plan waits, without changing anything. */
  discard(runId: string, author: Author): Promise<ChangeResult>;
  /** Cancels every run of an archived cluster. A second call finds the runs that were added meanwhile. */
  cancelOfCluster(clusterId: string, author: Author): Promise<void>;
  /** Fails the pending applies of an organization that was suspended or closed. Runs that have started continue. */
  endWaitingOf(organizationId: string, status: 'suspended' | 'closed', author: Author): Promise<void>;
  /** Clusters with pending or active runs. */
  clustersInUse(): Promise<readonly string[]>;
  /**
   * Drops the record of what an installation has created, without removing it. Rejected while one of its runs is
   * pending or active. For an overtaken run, drops only what that run has left.
   */
  forget(runId: string, author: Author): Promise<ChangeResult>;
}

export interface ChangesParts {
  readonly db: Db;
  readonly audit: Audit;
  readonly sources: Pick<RunSources, 'cluster' | 'unpinStackVersion'>;
  readonly find: (id: string) => Promise<Run | null>;
}

const listed = (statuses: readonly RunStatus[]): SQL =>
  sql.join(
    statuses.map((status) => sql`${status}`),
    sql`, `,
  );
const cancelable: readonly RunStatus[] = [...idleStatuses, ...statusesBefore('CANCELING')];
const isIdle = sql`status in (${listed(idleStatuses)})`;

export function createChanges({ db, audit, sources, find }: ChangesParts): Changes {
  type Write = (tx: Transaction, run: Run) => Promise<boolean>;
  async function change(runId: string, noted: Noted, write: Write): Promise<ChangeResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    // In the audit log of the organization that has the cluster now.
    const { organizationId } = (await sources.cluster(run.clusterId)) ?? run;
    const changed = await db.orm.transaction(async (tx) => {
      const done = await write(tx, run);
      if (done) await noteRun(audit, tx, { ...run, organizationId }, noted);
      return done;
    });
    const now = (await find(runId)) ?? run;
    return changed ? { kind: 'changed', run: now } : { kind: 'wrong_status', status: now.status };
  }

  return {
    cancel: (runId, author) => change(runId, { author, action: 'canceled' }, (tx) => cancelRun(tx, runId)),
    confirm: (runId, author) => change(runId, { author, action: 'confirmed' }, (tx) => confirmPlan(tx, runId)),
    discard: (runId, author) => change(runId, { author, action: 'discarded' }, (tx) => discardPlan(tx, runId)),
    async cancelOfCluster(clusterId, author) {
      const runs = await db.sql<{ id: string }[]>`
        select id from runs where cluster_id = ${clusterId} and status in ${db.sql([...cancelable])} order by id`;
      for (const { id } of runs) {
        await change(id, { author, action: 'canceled' }, (tx) => cancelForArchivedCluster(tx, id));
      }
    },
    async endWaitingOf(organizationId, status, author) {
      const runs = await db.sql<{ id: string }[]>`
        select id from runs
        where organization_id = ${organizationId} and status in ${db.sql([...idleStatuses])} and operation = 'apply' order by id`;
      for (const { id } of runs) {
        await change(id, { author, action: 'canceled' }, (tx) => endWaiting(tx, id, organizationInactive(status)));
      }
    },
    async clustersInUse() {
      const rows = await db.sql<{ id: string }[]>`
        select distinct cluster_id as id from runs where status in ${db.sql([...cancelable])}`;
      return rows.map(({ id }) => id);
    },
    async forget(runId, author) {
      // The record belongs to the run that is checked.
      if (((await find(runId))?.driftOf ?? null) !== null) return { kind: 'drift_check' };
      return change(runId, { author, action: 'forgotten' }, (tx, run) => forgetState(tx, sources, run));
    },
  };
}

/** @returns true if the run could still be canceled */
async function cancelRun(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set cancel_reason = 'asked',
      status = case when ${isIdle} then 'CANCELED' else 'CANCELING' end,
      ended_at = case when ${isIdle} then clock_timestamp() end
    where id = ${runId} and status in (${listed(cancelable)}) returning id`);
  return rows.length > 0;
}

/** Queues the run again: it has the lowest id of its cluster's queue. @returns true if its plan was waiting */
async function confirmPlan(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set status = 'PENDING', confirmed_at = clock_timestamp(), phase = null, prepared = false, log_offset = 0
    where id = ${runId} and status = 'PLANNED' returning id`);
  return rows.length > 0;
}

/** @returns true if the plan was waiting */
async function discardPlan(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set status = 'DISCARDED', ended_at = clock_timestamp()
    where id = ${runId} and status = 'PLANNED' returning id`);
  return rows.length > 0;
}

/**
 * Cancels for an archived cluster: a pending run fails at once, an active one as soon as Terraform has written its state.
 */
async function cancelForArchivedCluster(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set cancel_reason = 'cluster_gone',
      failure_code = case when ${isIdle} then 'CLUSTER_GONE' end,
      failure_message = case when ${isIdle} then ${clusterArchived} end,
      ended_at = case when ${isIdle} then clock_timestamp() end,
      status = case when ${isIdle} then 'FAILED' else 'CANCELING' end
    where id = ${runId} and status in (${listed(cancelable)}) returning id`);
  return rows.length > 0;
}

/** @returns true if the run was still waiting */
async function endWaiting(tx: Transaction, runId: string, message: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set status = 'FAILED', failure_code = 'ORGANIZATION_INACTIVE', failure_message = ${message},
      ended_at = clock_timestamp()
    where id = ${runId} and ${isIdle} returning id`);
  return rows.length > 0;
}

/** @returns true unless a run of the installation is pending or active; an overtaken run can always be forgotten */
async function forgetState(
  tx: Transaction,
  sources: ChangesParts['sources'],
  { id, installationId, clusterId }: Run,
): Promise<boolean> {
  await lockRuns(tx, clusterId);
  const overtaken = await tx.execute(sql`
    update runs r set forgotten_at = coalesce(r.forgotten_at, clock_timestamp())
    where r.id = ${id} and ${sql.raw(isOvertaken)} returning r.id`);
  if (overtaken.length > 0) return true;
  const rows = await tx.execute(sql`
    select 1 from runs where installation_id = ${installationId} and status in (${listed(unfinishedStatuses)}) limit 1`);
  if (rows.length > 0) return false;
  await tx.execute(sql`delete from stack_states where installation_id = ${installationId}`);
  await tx.execute(sql`
    update runs set status = 'SUPERSEDED' where installation_id = ${installationId} and status = 'APPLIED'`);
  await tx.execute(sql`
    update runs set forgotten_at = clock_timestamp() where installation_id = ${installationId} and forgotten_at is null`);
  await releaseForgotten(tx, sources, installationId);
  return true;
}
