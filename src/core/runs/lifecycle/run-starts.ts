import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { type Audit, type Author, systemAuthor } from '#core/audit/audit.ts';
import { noteRun } from './run-audit.ts';
import { markDriftChecked } from './run-drift.ts';
import { markExpired } from './run-expiry.ts';
import type { ApplyRequest, StartResult } from './run-requests.ts';
import { insertRun, type NewRun, NodeGoneError, type Run, StateNotSavedError } from './run-rows.ts';
import type { RunMode, RunOrigin, RunStatus } from './run-status.ts';
import { shownInputs } from './shown-inputs.ts';
import { inputsContext, type RunSources, type Sealer } from './sources.ts';

/** Creates runs: a run is stored here, and starts when its cluster is free. */
export interface Starts {
  apply(request: ApplyRequest): Promise<StartResult>;
  /**
   * Repeats a run that has ended without success, with the same version and inputs. Returns the pending or active
   * retry, if there is one.
   */
  retry(runId: string, author: Author, origin?: RunOrigin): Promise<StartResult>;
  /**
   * Removes what the installation of a run has created, given any of its runs. Returns the destroy of the same mode that
   * is pending or active, if there is one.
   * @param mode step after the plan; `auto` if absent
   */
  destroy(runId: string, author: Author, origin?: RunOrigin, mode?: RunMode): Promise<StartResult>;
  /** Requests the destroy of a run that has expired. `wrong_status`: it has not, or another run comes first. */
  expire(runId: string): Promise<StartResult>;
  /**
   * Requests a drift check of an APPLIED run. Returns the one that is pending or active, if there is one.
   * @param request null for a check by Headgate itself, which must be due, else `wrong_status`
   */
  checkDrift(runId: string, request: DriftRequest | null): Promise<StartResult>;
}

export interface DriftRequest {
  readonly author: Author;
  readonly origin: RunOrigin;
}

export interface StartsParts {
  readonly db: Db;
  readonly audit: Audit;
  readonly sealer: Sealer;
  readonly sources: RunSources;
  readonly find: (id: string) => Promise<Run | null>;
  /** Hours between two drift checks by Headgate itself; null or absent: there are none. */
  readonly driftHours?: number | null;
  /** Called after a run was stored. */
  readonly written: () => void;
}

/** Rolls back the transaction that inserts a run. */
class StackGoneError extends Error {}
class ClusterMovedError extends Error {}
/** The run has not expired, is no longer APPLIED, or its drift check is not due. */
class NotDueError extends Error {}

interface StartedRun extends NewRun {
  /** The expired run whose resources this run destroys. */
  readonly expired?: string;
  /** True for a drift check by Headgate itself, which must be due. */
  readonly isScheduled?: boolean;
}

interface Again {
  readonly runId: string;
  readonly author: Author;
  readonly origin: RunOrigin;
  /** Mode of a destroy; null for a retry, which keeps the mode of its run. */
  readonly mode: RunMode | null;
}

const retryable: readonly RunStatus[] = ['FAILED', 'CANCELED'];
const destroyable: readonly RunStatus[] = ['APPLIED', 'SUPERSEDED', 'FAILED', 'CANCELED'];

export function createStarts(parts: StartsParts): Starts {
  const { db, sealer, sources, find } = parts;

  async function again({ runId, author, origin, mode }: Again): Promise<StartResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    if (run.driftOf !== null) return { kind: 'drift_check' };
    const isRetry = mode === null;
    const may = isRetry ? retryable : destroyable;
    if (!may.includes(run.status)) return { kind: 'wrong_status', status: run.status };
    // Clusters move: the run belongs to the organization that has the cluster now.
    const cluster = await sources.cluster(run.clusterId);
    if (cluster === null) return { kind: 'cluster_gone' };
    const { organizationId } = cluster;
    // A destroy only removes what is on the cluster. A retry would apply inputs for an organization that did not give
    // them.
    if (isRetry && organizationId !== run.organizationId) return { kind: 'cluster_moved' };
    const inputs = await openInputs(runId);
    const other = isRetry ? { retryOf: run.id } : { mode, operation: 'destroy' as const, retryOf: null };
    const request = { ...run, ...other, organizationId, author, origin };
    return begin(parts, origin === 'expiry' ? { ...request, expired: run.id } : request, inputs);
  }

  async function checkDrift(runId: string, request: DriftRequest | null): Promise<StartResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    if (run.driftOf !== null) return { kind: 'drift_check' };
    if (run.status !== 'APPLIED') return { kind: 'wrong_status', status: run.status };
    const cluster = await sources.cluster(run.clusterId);
    if (cluster === null) return { kind: 'cluster_gone' };
    const { organizationId } = cluster;
    const { author, origin } = request ?? { author: systemAuthor, origin: 'drift' as const };
    const own = { mode: 'plan', retryOf: null, driftOf: run.id, expiresAfter: null, checkDrift: false } as const;
    const check = { ...run, ...own, organizationId, author, origin, isScheduled: request === null };
    return begin(parts, check, await openInputs(runId));
  }

  async function openInputs(runId: string): Promise<Buffer> {
    const [row] = await db.sql<{ inputs: Buffer }[]>`select inputs from runs where id = ${runId}`;
    if (row === undefined) throw new Error('the run no longer exists');
    return sealer.open(row.inputs, inputsContext(runId));
  }

  return {
    apply({ inputs, declared, mode = 'auto', ...request }) {
      const run = {
        ...request,
        mode,
        shownInputs: shownInputs(declared, inputs),
        operation: 'apply',
        retryOf: null,
      } as const;
      return begin(parts, run, Buffer.from(JSON.stringify(inputs), 'utf8'));
    },
    retry: (runId, author, origin = 'api') => again({ runId, author, origin, mode: null }),
    destroy: (runId, author, origin = 'api', mode = 'auto') => again({ runId, author, origin, mode }),
    expire: (runId) => again({ runId, author: systemAuthor, origin: 'expiry', mode: 'auto' }),
    checkDrift,
  };
}

async function begin(parts: StartsParts, run: StartedRun, inputs: Buffer): Promise<StartResult> {
  const { find, written, sources } = parts;
  const status = (await sources.cluster(run.clusterId))?.organizationStatus ?? 'active';
  if (run.operation === 'apply' && status !== 'active') return { kind: 'organization_inactive', status };
  try {
    const id = await write(parts, run, inputs);
    if (id === null) return { kind: 'queue_full' };
    written();
    const created = await find(id);
    if (created === null) throw new Error('the stored run was not found');
    return { kind: 'created', run: created };
  } catch (error) {
    if (error instanceof NotDueError) {
      const before = run.expired ?? run.driftOf ?? null;
      const now = before === null ? null : await find(before);
      return { kind: 'wrong_status', status: now?.status ?? 'APPLIED' };
    }
    return rejectionOf(error);
  }
}

/** @throws every error that is no result */
function rejectionOf(error: unknown): StartResult {
  if (error instanceof StackGoneError) return { kind: 'stack_gone' };
  if (error instanceof NodeGoneError) return { kind: 'node_gone' };
  if (error instanceof ClusterMovedError) return { kind: 'cluster_moved' };
  if (error instanceof StateNotSavedError) return { kind: 'state_not_saved', runId: error.runId };
  throw error;
}

/**
 * @returns null if the cluster's queue is full.
 * @throws StackGoneError, ClusterMovedError, NodeGoneError, NotDueError, StateNotSavedError
 */
function write(parts: StartsParts, run: StartedRun, inputs: Buffer): Promise<string | null> {
  const { db, audit, sealer, sources } = parts;
  return db.orm.transaction(async (tx) => {
    // The cluster cannot move until the transaction ends; a move that waits for the transaction finds the run.
    if ((await sources.holdCluster(tx, run.clusterId)) !== run.organizationId) throw new ClusterMovedError();
    const made = await insertRun(tx, run, (runId) => sealer.seal(inputs, inputsContext(runId), tx));
    if (made === null) return null;
    const { id, isNew } = made;
    if (!isNew) {
      await run.author.created?.(tx, formatId('run', id));
      return id;
    }
    if (!(await sources.pinStackVersion(tx, run.stackVersionId))) throw new StackGoneError();
    // The audit log gets no entry for each night.
    if (run.isScheduled !== true) await noteRun(audit, tx, { ...run, id }, { author: run.author, action: 'created' });
    if (!(await markDue(tx, run, id, parts.driftHours ?? null))) throw new NotDueError();
    return id;
  });
}

/** Marks the run that has expired or is checked. The caller has the lock of the cluster's runs. @returns false if not due */
async function markDue(tx: Transaction, run: StartedRun, id: string, driftHours: number | null): Promise<boolean> {
  if (run.expired !== undefined) return markExpired(tx, run.expired, id);
  const driftOf = run.driftOf ?? null;
  return driftOf === null || markDriftChecked(tx, driftOf, run.isScheduled === true ? driftHours : null);
}
