import { sql } from 'drizzle-orm';
import type { Sql } from 'postgres';
import type { Transaction } from '#base/database/database.ts';
import { uuidTimeMs, uuidv7 } from '#base/id.ts';
import { type Author, keyIdOf, userIdOf } from '#core/audit/audit.ts';
import { queueOrder } from './claiming.ts';
import type { ChangeSummary } from './log-line.ts';
import type { RunOutput } from './outputs.ts';
import type { PlanChanges } from './plan-changes.ts';
import {
  type FailureCode,
  type RunAccess,
  type RunMode,
  type RunOperation,
  type RunOrigin,
  type RunStatus,
  unfinishedStatuses,
} from './run-status.ts';
import type { ShownInput } from './shown-inputs.ts';
import type { WebPort } from './sources.ts';

/** A run as the API shows it. Ids are UUIDs, times milliseconds since the Unix epoch. */
export interface Run {
  readonly id: string;
  readonly installationId: string;
  readonly clusterId: string;
  readonly organizationId: string;
  readonly stackId: string;
  readonly stackName: string;
  readonly stackVersionId: string;
  /** A node's name; empty for the whole cluster. */
  readonly node: string;
  readonly operation: RunOperation;
  readonly status: RunStatus;
  readonly phase: string | null;
  readonly failureCode: FailureCode | null;
  readonly failureMessage: string | null;
  readonly retryOf: string | null;
  /** Null for runs of earlier versions of Headgate, as `shownInputs` and `origin`. */
  readonly stackVersion: number | null;
  readonly shownInputs: Readonly<Record<string, ShownInput>> | null;
  readonly origin: RunOrigin | null;
  readonly createdByUser: string | null;
  readonly createdByKey: string | null;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  /** Place in the queue of the cluster, from 1; null unless the run is pending. */
  readonly queuePosition: number | null;
  readonly mode: RunMode;
  readonly planned: ChangeSummary | null;
  /** Time since which the plan waited for its confirmation; null for other runs. */
  readonly plannedAtMs: number | null;
  readonly confirmedAtMs: number | null;
  readonly changes: ChangeSummary | null;
  readonly outputs: Readonly<Record<string, RunOutput>> | null;
  readonly web: WebPort | null;
  /** The reason why the web port that the run declares is invalid. */
  readonly webProblem: string | null;
  readonly access: RunAccess;
  readonly logLines: number;
  /** Seconds from the end of the apply after which the resources are destroyed, as requested; null: never. */
  readonly expiresAfter: number | null;
  /** True if a platform administrator requested the apply: an engine that it declares serves every organization. */
  readonly mayServe: boolean;
  /** Null unless the run is APPLIED and expires. */
  readonly expiresAtMs: number | null;
  /** The run that this run checks for drift; null for all other runs. */
  readonly driftOf: string | null;
  /** True if Headgate checks for drift by itself, while the run is APPLIED. */
  readonly checkDrift: boolean;
  /** The last drift check that has completed; null if there is none, and unless the run is APPLIED. */
  readonly driftFound: DriftFound | null;
  /** The drift check that is pending or active. */
  readonly driftCheckId: string | null;
  /** The last drift check, if it has failed. */
  readonly driftFailedId: string | null;
  /** True if the record of what the run created, and the state that it left, were dropped. */
  readonly isForgotten: boolean;
  /** True if the run was given up with its machine, and a later run's state is stored. */
  readonly isOvertaken: boolean;
}

/** The result of a drift check. */
export interface DriftFound {
  /** The run that has checked. */
  readonly runId: string;
  readonly checkedAtMs: number;
  /** Number of resources that differ from what was applied. */
  readonly changed: number;
  /** Number of resources that no longer exist. */
  readonly deleted: number;
}

export interface LoggedLine {
  readonly seq: number;
  readonly atMs: number;
  readonly phase: string;
  readonly level: 'info' | 'warn' | 'error';
  readonly type: string;
  readonly message: string;
}

const ms = (column: string): string => `floor(extract(epoch from ${column}) * 1000)::float8`;

/** SQL expression: when the resources of run `r` are destroyed, if it is APPLIED; null: never. */
export const expiresAt = `coalesce(r.expires_at, r.ended_at + make_interval(secs => r.expires_after))`;

/** SQL condition: run `d` is a destroy that removes resources. An unconfirmed plan destroys nothing. */
export const isRemoving = `(d.operation = 'destroy' and (d.mode = 'auto' or d.confirmed_at is not null))`;

/** SQL condition: run `r` is overtaken. */
export const isOvertaken = `(r.failure_code is not distinct from 'INTERRUPTED' and r.drift_of is null and exists (
  select from stack_states s where s.installation_id = r.installation_id and s.run_id > r.id))`;

const isUnfinished = (run: string): string =>
  `${run}.status in (${unfinishedStatuses.map((status) => `'${status}'`).join(', ')})`;

const driftColumns = `case when r.status = 'APPLIED' then (
    select json_build_object('runId', c.id, 'checkedAtMs', ${ms('c.ended_at')},
      'changed', coalesce((c.planned ->> 'change')::int, 0), 'deleted', coalesce((c.planned ->> 'remove')::int, 0))
    from runs c where c.drift_of = r.id and c.status = 'PLANNED_AND_FINISHED' order by c.id desc limit 1) end as "driftFound",
  case when r.status = 'APPLIED' then (
    select c.id from runs c where c.drift_of = r.id and ${isUnfinished('c')} limit 1) end as "driftCheckId",
  case when r.status = 'APPLIED' then (
    select case when c.status = 'FAILED' then c.id end from runs c
    where c.drift_of = r.id and c.status in ('PLANNED_AND_FINISHED', 'FAILED') order by c.id desc limit 1) end as "driftFailedId"`;

const columns = `r.id, r.installation_id as "installationId", r.cluster_id as "clusterId",
  r.organization_id as "organizationId", i.stack_id as "stackId", i.stack_name as "stackName",
  r.stack_version_id as "stackVersionId", i.node, r.operation, r.status, r.phase, r.failure_code as "failureCode",
  r.failure_message as "failureMessage", r.retry_of as "retryOf", r.created_by_user as "createdByUser",
  r.stack_version as "stackVersion", r.shown_inputs as "shownInputs", r.origin, r.mode, r.planned,
  ${ms('r.planned_at')} as "plannedAtMs", ${ms('r.confirmed_at')} as "confirmedAtMs",
  case when r.status = 'PENDING' then (select count(*) from runs q
    where q.cluster_id = r.cluster_id and q.status = 'PENDING' and ${queueOrder('q')} <= ${queueOrder('r')})::int end as "queuePosition",
  r.created_by_key as "createdByKey", ${ms('r.created_at')} as "createdAtMs", ${ms('r.started_at')} as "startedAtMs",
  ${ms('r.ended_at')} as "endedAtMs", r.changes, r.outputs, r.web,
  r.web_problem as "webProblem", r.access, r.log_lines as "logLines", r.expires_after as "expiresAfter", r.may_serve as "mayServe",
  case when r.status = 'APPLIED' then ${ms(expiresAt)} end as "expiresAtMs",
  r.drift_of as "driftOf", r.check_drift as "checkDrift", ${driftColumns},
  r.forgotten_at is not null as "isForgotten", ${isOvertaken} as "isOvertaken"`;

/** Filters of a list of runs, newest first; null filters nothing. `page` counts from 1. */
export interface RunList {
  /** Only runs on these clusters; null: on all clusters. */
  readonly clusterIds: readonly string[] | null;
  readonly clusterId: string | null;
  readonly stackName: string | null;
  /** Runs with any of these statuses. */
  readonly statuses: readonly RunStatus[] | null;
  /** Runs that this user requested, also with an API key. */
  readonly userId: string | null;
  readonly keyId: string | null;
  /** Requested at or after this time, in milliseconds since the Unix epoch. */
  readonly fromMs: number | null;
  /** Requested before this time. */
  readonly toMs: number | null;
  /** True: only drift checks. False or absent: only other runs. */
  readonly isDriftCheck?: boolean;
  readonly page: number;
  readonly limit: number;
}

const momentText = (ms: number): string => new Date(ms).toISOString();

export async function listRuns(
  db: Sql,
  list: RunList,
): Promise<{ readonly runs: readonly Run[]; readonly total: number }> {
  const {
    clusterIds,
    clusterId,
    stackName,
    statuses,
    userId,
    keyId,
    fromMs,
    toMs,
    isDriftCheck = false,
    page,
    limit,
  } = list;
  // Parameters are text, which PostgreSQL casts: the driver would ask for types of arrays first.
  const clusters = db`(select unnest(${`{${clusterIds?.join(',') ?? ''}}`}::text::uuid[]))`;
  const chosen = db`
    from runs r
    where ${isDriftCheck ? db`r.drift_of is not null` : db`r.drift_of is null`}
      and ${clusterIds === null ? db`true` : db`r.cluster_id in ${clusters}`}
      and ${clusterId === null ? db`true` : db`r.cluster_id = ${clusterId}`}
      and ${stackName === null ? db`true` : db`r.installation_id in (select id from installations where stack_name = ${stackName})`}
      and ${statuses === null ? db`true` : db`r.status in ${db([...statuses])}`}
      and ${userId === null ? db`true` : db`r.created_by_user = ${userId}`}
      and ${keyId === null ? db`true` : db`r.created_by_key = ${keyId}`}
      and ${fromMs === null ? db`true` : db`r.created_at >= ${momentText(fromMs)}::timestamptz`}
      and ${toMs === null ? db`true` : db`r.created_at < ${momentText(toMs)}::timestamptz`}`;
  return db.begin('read only isolation level repeatable read', async (tx) => {
    // The page is chosen before anything is joined to it.
    const runs = await tx<Run[]>`
      select ${tx.unsafe(columns)}
      from (select r.* ${chosen} order by r.id desc limit ${limit} offset ${(page - 1) * limit}) r
      join installations i on i.id = r.installation_id order by r.id desc`;
    const [count] = await tx<{ total: string }[]>`select count(*) as total ${chosen}`;
    return { runs, total: Number(count?.total ?? 0) };
  });
}

export async function findRun(db: Sql, id: string): Promise<Run | null> {
  const [run] = await db<Run[]>`
    select ${db.unsafe(columns)} from runs r join installations i on i.id = r.installation_id where r.id = ${id}`;
  return run ?? null;
}

/** Returns the changes of a plan that was made for somebody to look at; null if there is none. */
export async function readPlan(db: Sql, runId: string): Promise<PlanChanges | null> {
  const [row] = await db<{ changes: PlanChanges }[]>`select changes from run_plans where run_id = ${runId}`;
  return row?.changes ?? null;
}

/** Returns the lines after number `after`, in order. */
export async function readLog(db: Sql, runId: string, after: number, limit: number): Promise<readonly LoggedLine[]> {
  return db<LoggedLine[]>`
    select seq, ${db.unsafe(ms('at'))} as "atMs", phase, level, type, message from run_log
    where run_id = ${runId} and seq > ${after} order by seq limit ${limit}`;
}

export interface NewRun {
  /**
   * The installation of a run that follows another one. Without it, the current installation of the stack on this node.
   */
  readonly installationId?: string;
  readonly clusterId: string;
  readonly organizationId: string;
  readonly stackId: string;
  readonly stackName: string;
  readonly stackVersionId: string;
  readonly stackVersion: number | null;
  readonly shownInputs: Run['shownInputs'];
  readonly origin: RunOrigin;
  readonly mode: RunMode;
  /** Empty for the whole cluster. */
  readonly node: string;
  readonly operation: RunOperation;
  readonly access: RunAccess;
  readonly expiresAfter?: number | null;
  /** True for applies that a platform administrator requested: their engine serves every organization. */
  readonly mayServe?: boolean;
  /** True if absent. */
  readonly checkDrift?: boolean;
  /** The run that this run checks for drift. */
  readonly driftOf?: string | null;
  readonly retryOf: string | null;
  readonly author: Author;
}

/** Rolls back the transaction that inserts a run: an earlier run has left a state that is not stored. */
export class StateNotSavedError extends Error {
  readonly runId: string;
  constructor(runId: string) {
    super('an earlier run has left a state that is not stored');
    this.name = 'StateNotSavedError';
    this.runId = runId;
  }
}
/** The node of the installation was removed from its cluster. */
export class NodeGoneError extends Error {}

/** Maximum number of pending runs per cluster. */
export const queueMax = 10;

/** Locks the runs of a cluster until the transaction ends: only one change at a time of which runs the cluster has. */
export async function lockRuns(tx: Transaction, clusterId: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`headgate runs ${clusterId}`}, 0))`);
}

/**
 * Returns an id after those of all runs of a cluster, whichever gateway created them: runs start in the order of their
 * ids. The caller has the lock of the cluster's runs.
 */
async function nextRunId(tx: Transaction, clusterId: string): Promise<string> {
  const [row] = await tx.execute<{ now_ms: number; last: string | null }>(sql`
    select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms,
      (select id from runs where cluster_id = ${clusterId} order by id desc limit 1) as last`);
  const id = uuidv7(row?.now_ms);
  const last = row?.last ?? null;
  return last === null || last < id ? id : uuidv7(uuidTimeMs(last) + 1);
}

/**
 * Returns the pending or active run that already does what is requested again: the same removal, the same retry or
 * the same drift check. The caller has the lock of the cluster's runs.
 */
async function findAsked(tx: Transaction, run: NewRun): Promise<string | null> {
  const unfinished = sql`status in (${sql.join(
    unfinishedStatuses.map((status) => sql`${status}`),
    sql`, `,
  )})`;
  const isRemoval = run.operation === 'destroy' && run.installationId !== undefined;
  const driftOf = run.driftOf ?? null;
  const same = isRemoval
    ? sql`installation_id = ${run.installationId} and operation = 'destroy' and mode = ${run.mode} and ${unfinished}`
    : driftOf === null
      ? sql`retry_of = ${run.retryOf}::uuid and operation <> 'destroy' and ${unfinished}`
      : sql`drift_of = ${driftOf}::uuid and ${unfinished}`;
  const [found] = await tx.execute<{ id: string }>(sql`
    select id from runs where cluster_id = ${run.clusterId} and ${same} order by id desc limit 1`);
  return found?.id ?? null;
}

/**
 * Inserts a pending run, unless it was requested before.
 * @param seal encrypts the inputs, for the id of the new run
 * @returns null if the cluster's queue is full
 * @throws StateNotSavedError, NodeGoneError
 */
export async function insertRun(
  tx: Transaction,
  run: NewRun,
  seal: (runId: string) => Promise<Buffer>,
): Promise<{ readonly id: string; readonly isNew: boolean } | null> {
  // Without the lock, two requests at the same moment would not count each other.
  await lockRuns(tx, run.clusterId);
  const asked = await findAsked(tx, run);
  if (asked !== null) return { id: asked, isNew: false };
  const driftOf = run.driftOf ?? null;
  // Drift checks that wait leave every place of the queue to other runs.
  const [queue] = await tx.execute<{ waiting: number }>(sql`
    select count(*)::int as waiting from runs where cluster_id = ${run.clusterId} and status = 'PENDING'
      and (drift_of is null or ${driftOf !== null})`);
  if ((queue?.waiting ?? 0) >= queueMax) return null;
  const installationId = await installationOf(tx, run);
  const [unsaved] = await tx.execute<{ id: string }>(sql`
    select id from runs where installation_id = ${installationId} and left_state and forgotten_at is null
    order by id limit 1`);
  if (unsaved !== undefined) throw new StateNotSavedError(unsaved.id);
  const id = await nextRunId(tx, run.clusterId);
  const inputs = await seal(id);
  await tx.execute(sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, access, status, inputs,
      retry_of, stack_version, shown_inputs, origin, mode, expires_after, may_serve, check_drift,
      drift_of, created_by_user, created_by_key, created_at)
    values (${id}, ${installationId}, ${run.clusterId}, ${run.organizationId}, ${run.stackVersionId}, ${run.operation},
      ${run.access}, 'PENDING', ${inputs}, ${run.retryOf}, ${run.stackVersion},
      ${run.shownInputs === null ? null : JSON.stringify(run.shownInputs)}::jsonb, ${run.origin}, ${run.mode},
      ${run.operation === 'apply' ? (run.expiresAfter ?? null) : null}, ${run.mayServe ?? false},
      ${run.checkDrift ?? true}, ${driftOf}, ${userIdOf(run.author.actor)},
      ${keyIdOf(run.author.actor)}, clock_timestamp())`);
  return { id, isNew: true };
}

/** @throws NodeGoneError */
async function installationOf(tx: Transaction, run: NewRun): Promise<string> {
  if (run.installationId !== undefined) {
    const [known] = await tx.execute<{ id: string }>(
      sql`select id from installations where id = ${run.installationId} and retired_at is null`,
    );
    if (known === undefined) throw new NodeGoneError();
    return known.id;
  }
  const [installation] = await tx.execute<{ id: string }>(sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${uuidv7()}, ${run.clusterId}, ${run.stackId}, ${run.stackName}, ${run.node}, clock_timestamp())
    on conflict (cluster_id, stack_id, node) where retired_at is null
    do update set stack_name = excluded.stack_name returning id`);
  if (installation === undefined) throw new Error('the installation was not stored');
  return installation.id;
}
