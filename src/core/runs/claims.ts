import type { Sql } from 'postgres';
import { activeStatuses, type FailureCode, type RunOperation, type RunStatus, statusesBefore } from './run-status.ts';
import type { ChangeSummary, LogLine } from './log-line.ts';
import type { WebPort } from './sources.ts';

/** Another gateway has taken the run over: nothing more may be written or started for it here. */
export class RunLostError extends Error {
  constructor() {
    super('the run is held by another gateway');
    this.name = 'RunLostError';
  }
}

/** A run that this gateway holds. */
export interface ClaimedRun {
  readonly id: string;
  readonly fence: number;
  readonly installationId: string;
  readonly clusterId: string;
  readonly stackVersionId: string;
  readonly node: string;
  readonly operation: RunOperation;
  readonly status: RunStatus;
  readonly cancelReason: CancelReason | null;
  readonly inputs: Buffer;
  readonly prepared: boolean;
  readonly phase: string | null;
  readonly logOffset: number;
  readonly logLines: number;
  readonly logBytes: number;
}

export type CancelReason = 'asked' | 'timeout' | 'cluster_gone';

export interface RunEnd {
  readonly status: RunStatus;
  readonly failureCode?: FailureCode;
  readonly failureMessage?: string;
  readonly outputs?: object;
  readonly web?: WebPort | null;
}

export interface PhaseLines {
  readonly phase: string;
  readonly lines: readonly LogLine[];
  /** Bytes of the phase's output that are read when these lines are in. */
  readonly offset: number;
}

/** Who runs what, over all gateways of a database. Whatever is written names the fence that it was claimed with. */
export interface Claims {
  /** Whether any run could be claimed or adopted by somebody. */
  hasWork(): Promise<boolean>;
  /** The next run that may begin: of each cluster the oldest, while none of the cluster's is active. */
  claimNext(place: string): Promise<ClaimedRun | null>;
  /** One of this place that nobody has renewed. */
  adopt(place: string): Promise<ClaimedRun | null>;
  /** @returns how it stands. @throws RunLostError */
  renew(run: ClaimedRun): Promise<{ readonly status: RunStatus; readonly cancelReason: CancelReason | null }>;
  /** Renews no lease any more, so that another gateway of the place goes on at once. */
  release(run: ClaimedRun): Promise<void>;
  prepared(run: ClaimedRun): Promise<void>;
  /** @throws RunLostError */
  beginPhase(run: ClaimedRun, phase: string): Promise<void>;
  /** Since when the phase has been running; milliseconds. */
  phaseAgeMs(run: ClaimedRun): Promise<number>;
  /** Adds lines to the log. @throws RunLostError */
  append(run: ClaimedRun, lines: PhaseLines, logged: { readonly lines: number; readonly bytes: number }): Promise<void>;
  changes(run: ClaimedRun, changes: ChangeSummary): Promise<void>;
  cancel(run: ClaimedRun, reason: CancelReason): Promise<void>;
  /** @returns false when it has another status meanwhile, such as CANCELING. @throws RunLostError */
  turn(run: ClaimedRun, end: RunEnd): Promise<boolean>;
  /** Fails runs whose place nobody has heard of for `abandonedMs`, and such as have waited for longer than `pendingMs`. */
  sweep(limits: { readonly abandonedMs: number; readonly pendingMs: number }): Promise<void>;
}

/** How long a run stays with a gateway that says nothing. */
export const leaseSeconds = 60;

const columns = `r.id, r.fence, r.installation_id as "installationId", r.cluster_id as "clusterId",
  r.stack_version_id as "stackVersionId", i.node, r.operation, r.status, r.cancel_reason as "cancelReason", r.inputs,
  r.prepared, r.phase, r.log_offset::float8 as "logOffset", r.log_lines as "logLines", r.log_bytes as "logBytes"`;

export function createClaims(sql: Sql): Claims {
  const active: string[] = [...activeStatuses];
  const cancelable: string[] = [...statusesBefore('CANCELING'), 'CANCELING'];
  const lease = sql`clock_timestamp() + make_interval(secs => ${leaseSeconds})`;

  async function held(query: Promise<readonly unknown[]>): Promise<void> {
    if ((await query).length === 0) throw new RunLostError();
  }

  return {
    async hasWork() {
      const [row] = await sql<{ work: boolean }[]>`
        select exists (select from runs where status = 'PENDING')
          or exists (select from runs where status in ${sql(active)} and lease_until < clock_timestamp()) as work`;
      return row?.work === true;
    },
    async claimNext(place) {
      try {
        const [row] = await sql<ClaimedRun[]>`
          with next as (
            select r.id from runs r
            where r.status = 'PENDING'
              and not exists (select from runs a where a.cluster_id = r.cluster_id and a.status in ${sql(active)})
              and not exists (select from runs e where e.cluster_id = r.cluster_id and e.status = 'PENDING' and e.id < r.id)
            order by r.id limit 1 for update skip locked)
          update runs r set status = 'PLANNING', place = ${place}, fence = r.fence + 1, started_at = clock_timestamp(),
            lease_until = ${lease}
          from next, installations i where r.id = next.id and i.id = r.installation_id
          returning ${sql.unsafe(columns)}`;
        return row ?? null;
      } catch (error) {
        // Another gateway began a run of the same cluster at the same moment.
        if (isUniqueViolation(error)) return null;
        throw error;
      }
    },
    async adopt(place) {
      const [row] = await sql<ClaimedRun[]>`
        with next as (
          select id from runs where status in ${sql(active)} and place = ${place} and lease_until < clock_timestamp()
          order by id limit 1 for update skip locked)
        update runs r set fence = r.fence + 1, lease_until = ${lease}
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
    async release({ id, fence }) {
      await sql`update runs set lease_until = clock_timestamp() where id = ${id} and fence = ${fence}`;
    },
    prepared: ({ id, fence }) =>
      held(sql`update runs set prepared = true where id = ${id} and fence = ${fence} returning id`),
    beginPhase: ({ id, fence }, phase) =>
      held(sql`
        update runs set phase = ${phase}, phase_started_at = clock_timestamp(), log_offset = 0, lease_until = ${lease}
        where id = ${id} and fence = ${fence} returning id`),
    async phaseAgeMs({ id }) {
      const [row] = await sql<{ ms: number }[]>`
        select extract(epoch from clock_timestamp() - phase_started_at)::float8 * 1000 as ms from runs where id = ${id}`;
      return row?.ms ?? 0;
    },
    async append({ id, fence }, { phase, lines, offset }, logged) {
      await sql.begin(async (tx) => {
        const rows = await tx`
          update runs set log_offset = ${offset}, log_lines = ${logged.lines}, log_bytes = ${logged.bytes},
            lease_until = ${lease}
          where id = ${id} and fence = ${fence} returning id`;
        if (rows.length === 0) throw new RunLostError();
        const first = logged.lines - lines.length + 1;
        const values = lines.map(({ atMs, level, type, message }, index) => ({
          run_id: id,
          seq: first + index,
          at: new Date(atMs ?? Date.now()).toISOString(),
          phase,
          level,
          type,
          message,
        }));
        if (values.length > 0) await tx`insert into run_log ${tx(values)}`;
      });
    },
    changes: ({ id, fence }, changes) =>
      held(
        sql`update runs set changes = ${JSON.stringify(changes)}::jsonb where id = ${id} and fence = ${fence} returning id`,
      ),
    cancel: ({ id, fence }, reason) =>
      held(sql`
        update runs set status = 'CANCELING', cancel_reason = coalesce(cancel_reason, ${reason})
        where id = ${id} and fence = ${fence} and status in ${sql(cancelable)}
        returning id`),
    async turn({ id, fence, installationId }, { status, failureCode, failureMessage, outputs, web }) {
      return sql.begin(async (tx) => {
        const [now] = await tx<{ status: RunStatus }[]>`
          select status from runs where id = ${id} and fence = ${fence} for update`;
        if (now === undefined) throw new RunLostError();
        if (!statusesBefore(status).includes(now.status)) return false;
        const isEnd = !activeStatuses.includes(status);
        await tx`
          update runs set status = ${status}, failure_code = ${failureCode ?? null},
            failure_message = ${failureMessage ?? null},
            outputs = ${outputs === undefined ? null : JSON.stringify(outputs)}::jsonb,
            web = ${web === undefined || web === null ? null : JSON.stringify(web)}::jsonb,
            ended_at = case when ${isEnd} then clock_timestamp() end,
            lease_until = case when ${isEnd} then null else lease_until end
          where id = ${id}`;
        // What an earlier run has made is now what this one made of it.
        if (status === 'APPLIED' || status === 'DESTROYED') {
          await tx`
            update runs set status = 'SUPERSEDED'
            where installation_id = ${installationId} and status = 'APPLIED' and id <> ${id}`;
        }
        return true;
      });
    },
    async sweep({ abandonedMs, pendingMs }) {
      const abandoned = 'the machine that it ran on has not been heard of; what it had made until then is kept';
      await sql`
        update runs set status = 'FAILED', failure_code = 'INTERRUPTED', failure_message = ${abandoned},
          fence = fence + 1, ended_at = clock_timestamp(), lease_until = null
        where status in ${sql(active)} and lease_until < clock_timestamp() - make_interval(secs => ${abandonedMs / 1000})`;
      await sql`
        update runs set status = 'FAILED', failure_code = 'TIMEOUT', ended_at = clock_timestamp(),
          failure_message = 'it waited for too long to begin'
        where status = 'PENDING' and created_at < clock_timestamp() - make_interval(secs => ${pendingMs / 1000})`;
    },
  };
}

function isUniqueViolation(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '23505';
}
