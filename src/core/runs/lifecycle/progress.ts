import type { Sql, TransactionSql } from 'postgres';
import {
  type CancelReason,
  type ClaimedRun,
  leaseSeconds,
  type PhaseLines,
  type RunEnd,
  RunLostError,
} from './claimed-run.ts';
import type { ChangeSummary } from './log-line.ts';
import { activeStatuses, type RunStatus, statusesBefore } from './run-status.ts';

interface StatusNow {
  readonly status: RunStatus;
  readonly cancelReason: CancelReason | null;
}

/** Writes of the gateway that has claimed a run. All methods except `phaseAgeMs` throw RunLostError. */
export interface Progress {
  prepared(run: ClaimedRun): Promise<void>;
  beginPhase(run: ClaimedRun, phase: string): Promise<void>;
  /** Milliseconds since the phase started. */
  phaseAgeMs(run: ClaimedRun): Promise<number>;
  /** Adds lines to the log. */
  append(run: ClaimedRun, lines: PhaseLines, logged: { readonly lines: number; readonly bytes: number }): Promise<void>;
  changes(run: ClaimedRun, changes: ChangeSummary): Promise<void>;
  /** @returns the status now */
  readStatus(run: ClaimedRun): Promise<StatusNow>;
  cancel(run: ClaimedRun, reason: CancelReason): Promise<void>;
  /**
   * Records that the plan of a run is stored: it waits for its confirmation, or is finished. The lease stays, until the
   * folder of the plan is removed.
   * @returns false as `transition`
   */
  planned(run: ClaimedRun, status: 'PLANNED' | 'PLANNED_AND_FINISHED'): Promise<boolean>;
  /** @returns false if the run has another status meanwhile, such as CANCELING */
  transition(run: ClaimedRun, end: RunEnd): Promise<boolean>;
}

export function createProgress(sql: Sql): Progress {
  const cancelable: string[] = [...statusesBefore('CANCELING'), 'CANCELING'];
  const lease = sql`clock_timestamp() + make_interval(secs => ${leaseSeconds})`;

  async function held(query: Promise<readonly unknown[]>): Promise<void> {
    if ((await query).length === 0) throw new RunLostError();
  }

  async function readStatus({ id, fence }: Pick<ClaimedRun, 'id' | 'fence'>): Promise<StatusNow> {
    const [row] = await sql<StatusNow[]>`
      select status, cancel_reason as "cancelReason" from runs where id = ${id} and fence = ${fence}`;
    if (row === undefined) throw new RunLostError();
    return row;
  }

  return {
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
        if (lines.length === 0) return;
        const values = lines.map(({ atMs, ...line }, index) => {
          return { seq: first + index, at: atMs === null ? null : new Date(atMs).toISOString(), ...line };
        });
        // One parameter for all lines: PostgreSQL accepts at most 65,535 parameters.
        await tx`
          insert into run_log (run_id, seq, at, phase, level, type, message)
          select ${id}, seq, coalesce(at, clock_timestamp()), ${phase}, level, type, message
          from json_to_recordset(${JSON.stringify(values)}::text::json)
            as t(seq integer, at timestamptz, level text, type text, message text)`;
      });
    },
    changes: ({ id, fence }, changes) =>
      held(
        sql`update runs set changes = ${JSON.stringify(changes)}::jsonb,
          planned = coalesce(${changes.operation === 'plan' ? JSON.stringify(changes) : null}::jsonb, planned) where id = ${id} and fence = ${fence} returning id`,
      ),
    readStatus,
    cancel: ({ id, fence }, reason) =>
      held(sql`
        update runs set status = 'CANCELING', cancel_reason = coalesce(cancel_reason, ${reason})
        where id = ${id} and fence = ${fence} and status in ${sql(cancelable)}
        returning id`),
    async planned({ id, fence }, status) {
      const isFinished = status === 'PLANNED_AND_FINISHED';
      const rows = await sql`
        update runs set status = ${status}, lease_until = ${lease}, planned_at = clock_timestamp(),
          ended_at = case when ${isFinished} then clock_timestamp() end
        where id = ${id} and fence = ${fence} and status = 'PLANNING' returning id`;
      if (rows.length === 0) await readStatus({ id, fence });
      return rows.length > 0;
    },
    transition: (run, end) => sql.begin((tx) => transition(tx, run, end)),
  };
}

async function transition(
  tx: TransactionSql,
  { id, fence, installationId }: ClaimedRun,
  end: RunEnd,
): Promise<boolean> {
  const { status, failureCode, failureMessage, outputs, web, webProblem } = end;
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
      web_problem = ${webProblem ?? null},
      left_state = ${failureCode === 'STATE_SAVE_FAILED'},
      ended_at = case when ${isEnd} then clock_timestamp() end,
      lease_until = case when ${isEnd} then null else lease_until end
    where id = ${id}`;
  // The resources of an earlier run are now this run's.
  if (status === 'APPLIED' || status === 'DESTROYED') {
    await tx`
      update runs set status = 'SUPERSEDED'
      where installation_id = ${installationId} and status = 'APPLIED' and id <> ${id}`;
    // Drift checks of the earlier run would check what is no longer there.
    await tx`
      update runs set status = 'CANCELED', cancel_reason = 'asked', ended_at = clock_timestamp()
      where installation_id = ${installationId} and status = 'PENDING' and drift_of is not null`;
  }
  return true;
}
