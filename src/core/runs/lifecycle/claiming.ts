import type { Sql } from 'postgres';
import { type CancelReason, type ClaimedRun, leaseSeconds, RunLostError } from './claimed-run.ts';
import {
  activeStatuses,
  idleStatuses,
  occupyingStatuses,
  type RunStatus,
  unfinishedStatuses,
  waitHoursMax,
} from './run-status.ts';

/** Leases: which gateway has which run, and for how long. */
export interface Claiming {
  /** True if any gateway could claim or adopt a run, or if a plan is no longer needed. */
  hasWork(): Promise<boolean>;
  /**
   * Claims the next run that may start: the oldest of a cluster that has no active run. Organizations with fewer active
   * runs come first, so that none takes every place. Drift checks come last.
   */
  claimNext(place: string): Promise<ClaimedRun | null>;
  /** Number of active runs at each place, across all gateways. */
  load(): Promise<ReadonlyMap<string, number>>;
  /** Adopts a run of this place whose lease has expired. */
  adopt(place: string): Promise<ClaimedRun | null>;
  /** @returns the status now. @throws RunLostError */
  renew(run: ClaimedRun): Promise<{ readonly status: RunStatus; readonly cancelReason: CancelReason | null }>;
  /** Releases what this gateway had claimed before its restart: no other process has its id. */
  releaseOwn(): Promise<void>;
  /** Claims a run whose plan waits, so that nobody applies the plan while its folder is removed; null if it cannot. */
  holdWaiting(runId: string): Promise<Pick<ClaimedRun, 'id' | 'fence'> | null>;
  /** Ends the lease of a run whose plan waits, or was confirmed meanwhile. Does nothing to another run. */
  releaseWaiting(run: Pick<ClaimedRun, 'id' | 'fence'>): Promise<void>;
  /** Ends the lease, so that another gateway of the place can adopt the run at once. */
  release(run: ClaimedRun): Promise<void>;
}

const columns = `r.id, r.fence, r.installation_id as "installationId", r.cluster_id as "clusterId",
  r.organization_id as "organizationId",
  r.stack_version_id as "stackVersionId", i.node, r.operation, r.status, r.cancel_reason as "cancelReason", r.inputs, r.mode,
  r.drift_of as "driftOf",
  r.confirmed_at is not null as "isConfirmed",
  r.prepared, r.phase, r.log_offset::float8 as "logOffset", r.log_lines as "logLines", r.log_bytes as "logBytes"`;

/** SQL expression: the place of a run among the pending runs of its cluster. Drift checks let other runs pass. */
export const queueOrder = (run: string): string => `(${run}.drift_of is not null, ${run}.id)`;

/** SQL condition: the plan of run `r` has waited for too long. */
const isOverdue = `(r.status = 'PLANNED' and r.planned_at < clock_timestamp() - interval '${waitHoursMax} hours')`;

/** SQL condition: another run of the cluster starts before the pending run `r`. */
const isBehind = `exists (select from runs e where e.cluster_id = r.cluster_id and e.status = 'PENDING'
  and ${queueOrder('e')} < ${queueOrder('r')})`;

/** SQL condition: no gateway works on run `r`, such as on the removal of the folder in which it was planned. */
const isFree = '(r.lease_until is null or r.lease_until < clock_timestamp())';

/** @param holder this gateway's id: unique among running gateways, and the same after a restart */
export function createClaiming(sql: Sql, holder: string): Claiming {
  const active: string[] = [...activeStatuses];
  // A literal, so that every plan uses the index of active runs: this query runs all the time.
  const isActive = sql.unsafe(`status in (${activeStatuses.map((status) => `'${status}'`).join(', ')})`);
  const lease = sql`clock_timestamp() + make_interval(secs => ${leaseSeconds})`;

  return {
    async hasWork() {
      const [row] = await sql<{ work: boolean }[]>`
        select exists (select from runs where status = 'PENDING')
          or exists (select from runs where ${isActive} and lease_until < clock_timestamp())
          or exists (select from run_plans p join runs r on r.id = p.run_id where p.plan is not null
            and (${sql.unsafe(isOverdue)} or r.status not in ${sql([...unfinishedStatuses])})) as work`;
      return row?.work === true;
    },
    async claimNext(place) {
      try {
        const [row] = await sql<ClaimedRun[]>`
          with next as (
            select r.id from runs r
            where r.status = 'PENDING' and ${sql.unsafe(isFree)}
              and not exists (select from runs a where a.cluster_id = r.cluster_id and a.status in ${sql([...occupyingStatuses])})
              and not ${sql.unsafe(isBehind)}
            order by r.drift_of is not null, (select count(*) from runs a where a.organization_id = r.organization_id and a.${isActive}), r.id
            limit 1 for update of r skip locked)
          update runs r set status = 'PLANNING', place = ${place}, holder = ${holder}, fence = r.fence + 1,
            started_at = coalesce(r.started_at, clock_timestamp()),
            lease_until = ${lease}
          from next, installations i where r.id = next.id and i.id = r.installation_id
          returning ${sql.unsafe(columns)}`;
        return row ?? null;
      } catch (error) {
        // Another gateway started a run of the same cluster at the same moment.
        if (isUniqueViolation(error)) return null;
        throw error;
      }
    },
    async load() {
      const rows = await sql<{ place: string; runs: number }[]>`
        select place, count(*)::int as runs from runs where status in ${sql(active)} and place is not null group by place`;
      return new Map(rows.map(({ place, runs }) => [place, runs]));
    },
    async adopt(place) {
      const [row] = await sql<ClaimedRun[]>`
        with next as (
          select id from runs where status in ${sql(active)} and place = ${place} and lease_until < clock_timestamp()
          order by id limit 1 for update skip locked)
        update runs r set holder = ${holder}, fence = r.fence + 1, lease_until = ${lease}
        from next, installations i where r.id = next.id and i.id = r.installation_id
        returning ${sql.unsafe(columns)}`;
      return row ?? null;
    },
    async renew({ id, fence }) {
      const [row] = await sql<{ status: RunStatus; cancelReason: CancelReason | null }[]>`
        update runs set lease_until = ${lease} where id = ${id} and fence = ${fence}
        returning status, cancel_reason as "cancelReason"`;
      if (row === undefined) throw new RunLostError();
      return row;
    },
    async releaseOwn() {
      await sql`
        update runs set lease_until = clock_timestamp()
        where holder = ${holder} and status in ${sql([...unfinishedStatuses])} and lease_until > clock_timestamp()`;
    },
    ...createWaiting(sql, holder),
    async release({ id, fence }) {
      await sql`update runs set lease_until = clock_timestamp() where id = ${id} and fence = ${fence}`;
    },
  };
}

/** Leases of runs whose plan waits. */
function createWaiting(sql: Sql, holder: string): Pick<Claiming, 'holdWaiting' | 'releaseWaiting'> {
  return {
    async holdWaiting(runId) {
      const [row] = await sql<{ id: string; fence: number }[]>`
        update runs r set holder = ${holder}, fence = r.fence + 1, lease_until = clock_timestamp() + make_interval(secs => ${leaseSeconds})
        where r.id = ${runId} and r.status = 'PLANNED' and ${sql.unsafe(isFree)} returning r.id, r.fence`;
      return row ?? null;
    },
    async releaseWaiting({ id, fence }) {
      await sql`
        update runs set lease_until = null
        where id = ${id} and fence = ${fence} and status in ${sql([...idleStatuses])}`;
    },
  };
}

function isUniqueViolation(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23505';
}
