import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { ChangeSummary } from './log-line.ts';
import { type FailureCode, type RunOperation, type RunOrigin, type RunStatus, waitHoursMax } from './run-status.ts';
import type { RunSources } from './sources.ts';

/**
 * Notices about runs that ended or wait for their confirmation. They are found by what the rows say, so that no program
 * that ends a run has to send them. Drift checks have notices of their own.
 */

export type RunNotice = StatusNotice | ExpiryNotice | DriftNotice;

interface DriftNotice {
  readonly organizationId: string;
  readonly type: 'run.drifted';
  /** `check_run_id`: the run that shows what differs. `changed`, `deleted`: numbers of resources. */
  readonly data: NoticedRun & { readonly check_run_id: string; readonly changed: number; readonly deleted: number };
}

interface ExpiryNotice {
  readonly organizationId: string;
  readonly type: 'run.expiring';
  /** `expires_at`: ISO. */
  readonly data: NoticedRun & { readonly expires_at: string };
}

interface StatusNotice {
  readonly organizationId: string;
  readonly type: 'run.succeeded' | 'run.failed' | 'run.canceled' | 'run.needs_confirmation';
  readonly data: RunNoticeData;
}

/** Data without inputs, outputs and messages, which might contain secrets. */
interface RunNoticeData extends NoticedRun {
  readonly status: RunStatus;
  readonly failure_code: FailureCode | null;
  readonly plan: Pick<ChangeSummary, 'add' | 'change' | 'remove'> | null;
  /** ISO; null unless the run waits for its confirmation. */
  readonly confirm_by: string | null;
}

/** The fields that name a run. */
interface NoticedRun {
  readonly run_id: string;
  readonly operation: RunOperation;
  readonly stack: string;
  readonly stack_version: number | null;
  readonly cluster_id: string;
  /** Null for an archived cluster. */
  readonly cluster: string | null;
  readonly node: string | null;
  /** User or key. */
  readonly created_by: string | null;
  readonly created_via: RunOrigin | null;
}

export interface NoticeParts {
  readonly db: Db;
  readonly sources: Pick<RunSources, 'cluster'>;
  /** Raises an alert in the transaction of its cause. */
  readonly raiseIn: (tx: Transaction, notice: RunNotice) => Promise<void>;
}

export interface NoticedRow extends Record<string, unknown> {
  readonly id: string;
  readonly organization_id: string;
  readonly cluster_id: string;
  readonly operation: RunOperation;
  readonly stack_name: string;
  readonly stack_version: number | null;
  readonly node: string;
  readonly created_by_user: string | null;
  readonly created_by_key: string | null;
  readonly origin: RunOrigin | null;
}

/** Columns of `NoticedRow`, of a run `r` and its installation `i`. */
export const noticedColumns =
  sql.raw(`r.id, r.organization_id, r.cluster_id, r.operation, i.stack_name, r.stack_version,
  i.node, r.created_by_user, r.created_by_key, r.origin`);

interface Row extends NoticedRow {
  readonly status: RunStatus;
  readonly failure_code: FailureCode | null;
  readonly planned: ChangeSummary | null;
  readonly planned_ms: number | null;
}

const noticesAtOnce = 50;

/** Raises the due notices, each once: a run is marked in the transaction of its notice. @returns their number */
export async function notifyRuns(parts: NoticeParts): Promise<number> {
  for (let raised = 0; ;) {
    const count = await parts.db.orm.transaction((tx) => notifySome(tx, parts));
    raised += count;
    if (count < noticesAtOnce) return raised;
  }
}

async function notifySome(tx: Transaction, { sources, raiseIn }: NoticeParts): Promise<number> {
  // Rows that another gateway works on are skipped.
  const rows = await tx.execute<Row>(sql`
    select ${noticedColumns}, r.status, r.failure_code, r.planned,
      floor(extract(epoch from r.planned_at) * 1000)::float8 as planned_ms
    from runs r join installations i on i.id = r.installation_id
    where r.notified is distinct from 'end' and r.drift_of is null
      and (r.ended_at is not null or (r.status = 'PLANNED' and r.notified is null))
    order by r.id limit ${noticesAtOnce} for update of r skip locked`);
  for (const row of rows) {
    const type = typeOf(row);
    await raiseIn(tx, { organizationId: row.organization_id, type, data: await dataOf(sources, row) });
    const notified = type === 'run.needs_confirmation' ? 'plan' : 'end';
    await tx.execute(sql`update runs set notified = ${notified} where id = ${row.id}`);
  }
  return rows.length;
}

function typeOf({ status }: Row): StatusNotice['type'] {
  if (status === 'PLANNED') return 'run.needs_confirmation';
  if (status === 'FAILED') return 'run.failed';
  return status === 'CANCELED' || status === 'DISCARDED' ? 'run.canceled' : 'run.succeeded';
}

async function dataOf(sources: NoticeParts['sources'], row: Row): Promise<RunNoticeData> {
  const { status, failure_code, planned, planned_ms: plannedMs } = row;
  const confirmByMs = status === 'PLANNED' && plannedMs !== null ? plannedMs + waitHoursMax * 3_600_000 : null;
  return {
    ...(await namedRun(sources, row)),
    // A run that was superseded meanwhile ended as APPLIED.
    status: status === 'SUPERSEDED' ? 'APPLIED' : status,
    failure_code,
    plan: planned === null ? null : { add: planned.add, change: planned.change, remove: planned.remove },
    confirm_by: confirmByMs === null ? null : new Date(confirmByMs).toISOString(),
  };
}

export async function namedRun(sources: NoticeParts['sources'], row: NoticedRow): Promise<NoticedRun> {
  const key = row.created_by_key === null ? null : formatId('key', row.created_by_key);
  const user = row.created_by_user === null ? null : formatId('user', row.created_by_user);
  return {
    run_id: formatId('run', row.id),
    operation: row.operation,
    stack: row.stack_name,
    stack_version: row.stack_version,
    cluster_id: formatId('cluster', row.cluster_id),
    cluster: (await sources.cluster(row.cluster_id))?.name ?? null,
    node: row.node === '' ? null : row.node,
    created_by: key ?? user,
    created_via: row.origin,
  };
}
