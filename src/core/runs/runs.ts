import { sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { createClaims } from './claims.ts';
import { createRunLoop, type RunLoop } from './run-loop.ts';
import {
  findRun,
  insertRun,
  type LoggedLine,
  listRuns,
  type NewRun,
  readLog,
  type Run,
  type RunList,
} from './run-rows.ts';
import { activeStatuses, type RunStatus, statusesBefore } from './run-status.ts';
import type { FoundRunner } from './runner/runner.ts';
import type { RunSources, Sealer } from './sources.ts';
import { createStates } from './states.ts';

/**
 * Stacks applied to clusters. A run is written first and runs when its cluster is free; it outlives the gateway that
 * runs it, and ends with every resource that it made on record.
 */

export { createMask, type Mask } from './mask.ts';
export type { RunOutput } from './outputs.ts';
export type { LoggedLine, Run, RunList } from './run-rows.ts';
export { failureCodes, isFinal, runOperations, runStatuses, type RunStatus } from './run-status.ts';
export {
  findRunner,
  findTerraformPath,
  type FoundRunner,
  hasRunFolders,
  type Runner,
  type RunnerSearch,
} from './runner/runner.ts';
export type { ClusterContext, ClusterNode, RunSources, Sealer, StackInput, StackPackage, WebPort } from './sources.ts';
export { injectedNames } from './work-files.ts';

export interface ApplyRequest {
  readonly clusterId: string;
  readonly organizationId: string;
  readonly stackId: string;
  readonly stackName: string;
  readonly stackVersionId: string;
  /** Empty for the whole cluster. */
  readonly node: string;
  /** Checked against what the version declares. */
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly author: Author;
}

export type StartResult =
  | { readonly kind: 'created'; readonly run: Run }
  | { readonly kind: 'queue_full' }
  /** The version of the stack is not there any more. */
  | { readonly kind: 'stack_gone' }
  /** It runs or waits, or has nothing that could be done again. */
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  | { readonly kind: 'not_found' };

export type ChangeResult =
  | { readonly kind: 'changed'; readonly run: Run }
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  | { readonly kind: 'not_found' };

export interface Runs {
  apply(request: ApplyRequest): Promise<StartResult>;
  /** The same version and inputs again, of a run that has ended without success. */
  retry(runId: string, author: Author): Promise<StartResult>;
  /** Removes what the installation of a run has made, whichever of its runs is named. */
  destroy(runId: string, author: Author): Promise<StartResult>;
  /** One that waits is CANCELED at once; one that runs ends as soon as Terraform lets it. */
  cancel(runId: string, author: Author): Promise<ChangeResult>;
  /** Drops what is known of what an installation has made, without removing it. Refused while it runs. */
  forget(runId: string, author: Author): Promise<ChangeResult>;
  find(runId: string): Promise<Run | null>;
  list(list: RunList): Promise<{ readonly runs: readonly Run[]; readonly total: number }>;
  /** Lines behind the one numbered `after`, in their order. */
  log(runId: string, after: number, limit: number): Promise<readonly LoggedLine[]>;
  /** Why nothing can be applied here; null where it can. */
  problem(): Promise<string | null>;
  readonly loop: RunLoop;
}

export interface RunsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly log: Log;
  readonly sealer: Sealer;
  readonly sources: RunSources;
  /** Looks for what can run Terraform here. Called once, when it is first needed. */
  readonly findRunner: () => Promise<FoundRunner>;
  /** Whether runs have left folders here. Asked at the start, before anything is looked for. */
  readonly hasFolders?: () => boolean;
  readonly atOnceMax?: number;
  readonly initMs?: number;
  readonly phaseMs?: number;
  /** How long nobody may have heard of a run's machine before the run counts as lost. */
  readonly abandonedMs?: number;
}

/** Undoes the transaction that writes a run. */
class StackGoneError extends Error {}

const inputsContext = (runId: string): string => `inputs ${runId}`;

export function createRuns(options: RunsOptions): Runs {
  const {
    db,
    clock,
    audit,
    sealer,
    sources,
    findRunner,
    hasFolders = () => false,
    atOnceMax = 2,
    initMs = 300_000,
    phaseMs = 3_600_000,
    abandonedMs = 15 * 60_000,
  } = options;
  const states = createStates(db.sql, sealer);
  const find = (id: string): Promise<Run | null> => findRun(db.sql, id);
  const common = { ...options, claims: createClaims(db.sql), states, limits: { initMs, phaseMs } };
  let found: Promise<FoundRunner> | null = null;
  const look = (): Promise<FoundRunner> => {
    found ??= findRunner();
    // What could not be looked at is looked at again.
    found.catch(() => (found = null));
    return found;
  };
  const runner = async (): Promise<FoundRunner['runner']> => (await look()).runner;
  const loop = createRunLoop({ ...common, runner, atOnceMax, abandonedMs, hasFolders, find });

  async function begin(run: NewRun, inputs: Buffer): Promise<StartResult> {
    try {
      return await beginOrThrow(run, inputs);
    } catch (error) {
      if (error instanceof StackGoneError) return { kind: 'stack_gone' };
      throw error;
    }
  }

  async function beginOrThrow(run: NewRun, inputs: Buffer): Promise<StartResult> {
    const seal = (tx: Transaction, id: string): Promise<Buffer> => sealer.seal(inputs, inputsContext(id), tx);
    const id = await db.orm.transaction(async (tx) => {
      const made = await insertRun(tx, run, clock.now(), (runId) => seal(tx, runId));
      if (made === null) return 'queue_full';
      if (!(await sources.pinStackVersion(tx, run.stackVersionId))) throw new StackGoneError();
      await note(tx, { ...run, id: made }, run.author, 'created', run.operation);
      return { made };
    });
    if (typeof id === 'string') return { kind: id };
    loop.wake();
    const created = await find(id.made);
    if (created === null) throw new Error('the run that was written is not there');
    return { kind: 'created', run: created };
  }

  type Noted = Pick<Run, 'id' | 'organizationId' | 'stackName' | 'clusterId'>;
  async function note(tx: Transaction, run: Noted, author: Author, action: string, operation: string): Promise<void> {
    await audit.record(tx, {
      organizationId: run.organizationId,
      author,
      action: `run.${action}`,
      targetType: 'run',
      targetId: formatId('run', run.id),
      before: null,
      after: { operation, stack: run.stackName, cluster: formatId('cluster', run.clusterId) },
    });
  }

  async function again(runId: string, author: Author, operation: Run['operation'] | null): Promise<StartResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    const may: readonly RunStatus[] =
      operation === null ? ['FAILED', 'CANCELED'] : ['APPLIED', 'SUPERSEDED', 'FAILED', 'CANCELED'];
    if (!may.includes(run.status)) return { kind: 'wrong_status', status: run.status };
    const inputs = await openInputs(runId);
    return begin(
      { ...run, operation: operation ?? run.operation, retryOf: operation === null ? run.id : null, author },
      inputs,
    );
  }

  async function openInputs(runId: string): Promise<Buffer> {
    const [row] = await db.sql<{ inputs: Buffer }[]>`select inputs from runs where id = ${runId}`;
    if (row === undefined) throw new Error('the run is not there any more');
    return sealer.open(row.inputs, inputsContext(runId));
  }

  async function change(
    runId: string,
    author: Author,
    action: string,
    write: (tx: Transaction, run: Run) => Promise<boolean>,
  ): Promise<ChangeResult> {
    const run = await find(runId);
    if (run === null) return { kind: 'not_found' };
    const changed = await db.orm.transaction(async (tx) => {
      const done = await write(tx, run);
      if (done) await note(tx, run, author, action, run.operation);
      return done;
    });
    const now = (await find(runId)) ?? run;
    return changed ? { kind: 'changed', run: now } : { kind: 'wrong_status', status: now.status };
  }

  return {
    apply: ({ inputs, ...request }) =>
      begin({ ...request, operation: 'apply', retryOf: null }, Buffer.from(JSON.stringify(inputs), 'utf8')),
    retry: (runId, author) => again(runId, author, null),
    destroy: (runId, author) => again(runId, author, 'destroy'),
    cancel: (runId, author) =>
      change(runId, author, 'canceled', async (tx) => {
        const cancelable = sql.join(
          statusesBefore('CANCELING').map((status) => sql`${status}`),
          sql`, `,
        );
        const rows = await tx.execute(sql`
          update runs set cancel_reason = 'asked',
            status = case when status = 'PENDING' then 'CANCELED' else 'CANCELING' end,
            ended_at = case when status = 'PENDING' then clock_timestamp() end
          where id = ${runId} and status in ('PENDING', ${cancelable}) returning id`);
        return rows.length > 0;
      }),
    forget: (runId, author) =>
      change(runId, author, 'forgotten', async (tx, { installationId }) => {
        const active = sql.join(
          ['PENDING', ...activeStatuses].map((status) => sql`${status}`),
          sql`, `,
        );
        const rows = await tx.execute(sql`
          select 1 from runs where installation_id = ${installationId} and status in (${active}) limit 1`);
        if (rows.length > 0) return false;
        await tx.execute(sql`delete from stack_states where installation_id = ${installationId}`);
        await tx.execute(sql`
          update runs set status = 'SUPERSEDED' where installation_id = ${installationId} and status = 'APPLIED'`);
        return true;
      }),
    find,
    list: (list) => listRuns(db.sql, list),
    log: (runId, after, limit) => readLog(db.sql, runId, after, limit),
    problem: async () => (await look()).problem,
    loop,
  };
}
