import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import { createClaims } from './claims.ts';
import { type Changes, createChanges } from './run-changes.ts';
import { createPlaces } from './places.ts';
import { createRunLoop, type RunLoop } from './run-loop.ts';
import { findRun, type LoggedLine, listRuns, readLog, type Run, type RunList } from './run-rows.ts';
import { createStarts, type Starts } from './run-starts.ts';
import type { ContainerRunners, FoundRunner } from '#core/runs/runner/runner.ts';
import type { RunSources, Sealer } from './sources.ts';
import { createStates } from './states.ts';

/**
 * Stacks applied to clusters. A run is written first and runs when its cluster is free; it outlives the gateway that
 * runs it, and ends with every resource that it made on record.
 */

export type { RunOutput } from './outputs.ts';
export type { ApplyRequest, ChangeResult, StartResult } from './run-requests.ts';
export type { LoggedLine, Run, RunList } from './run-rows.ts';
export { failureCodes, isFinal, runOperations, runStatuses, type RunStatus } from './run-status.ts';
export {
  type ContainerRunners,
  type ContainerSettings,
  createContainerRunners,
  findRunner,
  findTerraformPath,
  type FoundRunner,
  hasRunFolders,
  type RunHost,
  type Runner,
  type RunnerSearch,
} from '#core/runs/runner/runner.ts';
export type { ClusterContext, ClusterNode, RunSources, Sealer, StackInput, StackPackage, WebPort } from './sources.ts';

export interface Runs extends Starts, Changes {
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
  /** Places that come before this machine; none when absent. */
  readonly containers?: ContainerRunners | null;
  /** Whether runs have left folders here. Asked at the start, before anything is looked for. */
  readonly hasFolders?: () => boolean;
  readonly atOnceMax?: number;
  readonly initMs?: number;
  readonly phaseMs?: number;
  /** How long nobody may have heard of a run's machine before the run counts as lost. */
  readonly abandonedMs?: number;
}

export function createRuns(options: RunsOptions): Runs {
  const { db, sealer, atOnceMax = 2, initMs = 300_000, phaseMs = 3_600_000, abandonedMs = 15 * 60_000 } = options;
  const find = (id: string): Promise<Run | null> => findRun(db.sql, id);
  const look = once(options.findRunner);
  const loop = createRunLoop({
    ...options,
    claims: createClaims(db.sql),
    states: createStates(db.sql, sealer),
    limits: { initMs, phaseMs },
    places: createPlaces({
      runner: async () => (await look()).runner,
      containers: options.containers ?? null,
      hasFolders: options.hasFolders ?? (() => false),
    }),
    atOnceMax,
    abandonedMs,
    find,
  });

  return {
    ...createStarts({ ...options, find, written: () => loop.wake() }),
    ...createChanges({ ...options, find }),
    find,
    list: (list) => listRuns(db.sql, list),
    log: (runId, after, limit) => readLog(db.sql, runId, after, limit),
    async problem() {
      const { containers = null } = options;
      if (containers !== null && (await containers.next(new Map())) !== null) return null;
      const { problem } = await look();
      const troubles = containers?.troubles().map(({ host, trouble }) => `${host}: ${trouble}`) ?? [];
      return problem === null || troubles.length === 0
        ? problem
        : `no Docker host can have runs (${troubles.join('; ')}), and ${problem}`;
    },
    loop,
  };
}

/** What could not be looked at is looked at again. */
function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | null = null;
  return () => {
    asked ??= ask();
    asked.catch(() => (asked = null));
    return asked;
  };
}
