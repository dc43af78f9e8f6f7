import { type SQL, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { type Noted, noteRun } from './run-audit.ts';
import type { ChangeResult } from './run-requests.ts';
import { releaseForgotten } from './release-versions.ts';
import { isOvertaken, lockRuns, type Run } from './run-rows.ts';
import type { RunSources } from './sources.ts';
import { activeStatuses, clusterGone, organizationInactive, type RunStatus, statusesBefore } from './run-status.ts';

/** What is done to runs that are there. */
export interface Changes {
  /** One that waits is CANCELED at once; one that runs ends as soon as Terraform lets it. */
  cancel(runId: string, author: Author): Promise<ChangeResult>;
  /** Cancels every run of a cluster that is deleted. Done again, it finds those that came meanwhile. */
  cancelOfCluster(clusterId: string, author: Author): Promise<void>;
  /** Ends what an organization that was suspended or closed would have applied: runs that wait. What has begun goes on. */
  endWaitingOf(organizationId: string, status: 'suspended' | 'closed', author: Author): Promise<void>;
  /** Clusters that have runs which wait or run. */
  clustersInUse(): Promise<readonly string[]>;
  /**
   * Drops what is known of what an installation has made, without removing it. Refused while it runs. Of a run that a
   * later one has overtaken it drops what that run alone has left.
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
const cancelable: readonly RunStatus[] = ['PENDING', ...statusesBefore('CANCELING')];
const unfinished: readonly RunStatus[] = ['PENDING', ...activeStatuses];

export function createChanges({ db, audit, sources, find }: ChangesParts): Changes {
  type Write = (tx: Transaction, run: Run) => Promise<boolean>;
  async function change(runId: string, noted: Noted, write: Write): Promise<ChangeResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    // In the audit log of whom the cluster belongs to now.
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
    async cancelOfCluster(clusterId, author) {
      const runs = await db.sql<{ id: string }[]>`
        select id from runs where cluster_id = ${clusterId} and status in ${db.sql([...cancelable])} order by id`;
      for (const { id } of runs) {
        await change(id, { author, action: 'canceled' }, (tx) => cancelGone(tx, id));
      }
    },
    async endWaitingOf(organizationId, status, author) {
      const runs = await db.sql<{ id: string }[]>`
        select id from runs
        where organization_id = ${organizationId} and status = 'PENDING' and operation = 'apply' order by id`;
      for (const { id } of runs) {
        await change(id, { author, action: 'canceled' }, (tx) => endWaiting(tx, id, organizationInactive(status)));
      }
    },
    async clustersInUse() {
      const rows = await db.sql<{ id: string }[]>`
        select distinct cluster_id as id from runs where status in ${db.sql([...cancelable])}`;
      return rows.map(({ id }) => id);
    },
    forget: (runId, author) =>
      change(runId, { author, action: 'forgotten' }, (tx, run) => forgetState(tx, sources, run)),
  };
}

/** @returns whether it could still be canceled */
async function cancelRun(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set cancel_reason = 'asked',
      status = case when status = 'PENDING' then 'CANCELED' else 'CANCELING' end,
      ended_at = case when status = 'PENDING' then clock_timestamp() end
    where id = ${runId} and status in (${listed(cancelable)}) returning id`);
  return rows.length > 0;
}

/** One that waits for a cluster that is gone has failed; one that runs fails as soon as Terraform has written its state. */
async function cancelGone(tx: Transaction, runId: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set cancel_reason = 'cluster_gone',
      failure_code = case when status = 'PENDING' then 'CLUSTER_GONE' end,
      failure_message = case when status = 'PENDING' then ${clusterGone} end,
      ended_at = case when status = 'PENDING' then clock_timestamp() end,
      status = case when status = 'PENDING' then 'FAILED' else 'CANCELING' end
    where id = ${runId} and status in (${listed(cancelable)}) returning id`);
  return rows.length > 0;
}

/** @returns whether it has not begun */
async function endWaiting(tx: Transaction, runId: string, message: string): Promise<boolean> {
  const rows = await tx.execute(sql`
    update runs set status = 'FAILED', failure_code = 'ORGANIZATION_INACTIVE', failure_message = ${message},
      ended_at = clock_timestamp()
    where id = ${runId} and status = 'PENDING' returning id`);
  return rows.length > 0;
}

/** @returns whether none of its installation's runs was under way, or needs what it has left */
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
    select 1 from runs where installation_id = ${installationId} and status in (${listed(unfinished)}) limit 1`);
  if (rows.length > 0) return false;
  await tx.execute(sql`delete from stack_states where installation_id = ${installationId}`);
  await tx.execute(sql`
    update runs set status = 'SUPERSEDED' where installation_id = ${installationId} and status = 'APPLIED'`);
  await tx.execute(sql`
    update runs set forgotten_at = clock_timestamp() where installation_id = ${installationId} and forgotten_at is null`);
  await releaseForgotten(tx, sources, installationId);
  return true;
}
