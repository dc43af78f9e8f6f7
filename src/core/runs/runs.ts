import { sql as text } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import { createPlans, createStates } from '#core/runs/execute/execute.ts';
import {
  activeStatuses,
  type Changes,
  type Claims,
  createChanges,
  createClaims,
  createStarts,
  type DeclaredWebPort,
  dropOldLogs,
  findRun,
  listRuns,
  listWebPorts,
  type LoggedLine,
  changeDriftCheck,
  changeExpiry,
  checkDriftOfDue,
  destroyExpired,
  type DriftCheckChange,
  type ChangeResult,
  type ExpiryChange,
  notifyDrift,
  notifyExpiring,
  notifyRuns,
  readLog,
  type PlanChanges,
  readPlan,
  releaseVersions,
  type Run,
  type RunList,
  type RunNotice,
  type RunSources,
  type Sealer,
  type Starts,
  unfinishedStatuses,
} from '#core/runs/lifecycle/lifecycle.ts';
import { type ContainerRunners, type FoundRunner, readMirror, type Terraform } from '#core/runs/runner/runner.ts';
import { resealRuns } from './reseal.ts';
import { createPlaces } from './places.ts';
import { createRunLoop, type RunLoop } from './run-loop.ts';

/**
 * Stacks applied to clusters. A run is stored first and starts when its cluster is free. It outlives the gateway that
 * runs it, and once the run has ended, every resource that it created is on record.
 */

export { type AppliedSpan, readAppliedSpans } from './applied-spans.ts';
export { type NamedNode, type NodeRuns, nodeRuns, type RunsOnNode } from './node-runs.ts';
export {
  countExpiringRuns,
  countUnfinishedRuns,
  endDriftChecks,
  endExpiries,
  endUnfinishedRuns,
  isFinal,
  markOf,
  type PlanChanges,
  type PlannedResource,
  runAccess,
  type RunMode,
  type RunOrigin,
  type ShownInput,
  runStatuses,
  lifeSecondsMax,
  lifeSecondsMin,
  listEngines,
  secretCharsMin,
  stateNotSaved,
  waitHoursMax,
  type ApplyRequest,
  type ChangeResult,
  type ClusterContext,
  type ClusterNode,
  type DeclaredWebPort,
  type DriftFound,
  type LoggedLine,
  type Run,
  type RunList,
  type RunNotice,
  type RunOutput,
  type RunSources,
  type RunStatus,
  type Sealer,
  type StackInput,
  type StackPackage,
  type StartResult,
  type WebPort,
} from '#core/runs/lifecycle/lifecycle.ts';
export { countOtherKeysSeals } from './reseal.ts';
export {
  askRunner,
  type AskedRunner,
  type ContainerRunners,
  type ContainerSettings,
  createContainerRunners,
  findRunner,
  type FoundRunner,
  gateAddresses,
  hasRunFolders,
  type RunHost,
  type Runner,
  type RunnerSearch,
  type SwarmGates,
} from '#core/runs/runner/runner.ts';

export interface Runs extends Starts, Changes {
  find(runId: string): Promise<Run | null>;
  list(list: RunList): Promise<{ readonly runs: readonly Run[]; readonly total: number }>;
  /** Returns the lines after number `after`, in order. */
  log(runId: string, after: number, limit: number): Promise<readonly LoggedLine[]>;
  /** Returns what a plan would change; null if the run made no plan for somebody to look at. */
  plan(runId: string): Promise<PlanChanges | null>;
  /** Changes when the resources of an APPLIED run are destroyed. @throws AppError invalid_value */
  changeExpiry(change: ExpiryChange): Promise<ChangeResult>;
  /** Changes whether Headgate checks an APPLIED run for drift by itself. */
  changeDriftCheck(change: DriftCheckChange): Promise<ChangeResult>;
  /** Requests the drift checks that are due. @returns the number of requested checks */
  checkDriftOfDue(): Promise<number>;
  /** Requests a destroy for each run that has expired and was announced. @returns the number of requested runs */
  destroyExpired(): Promise<number>;
  /**
   * Raises alerts about runs that ended, wait for their confirmation, expire soon or have drifted. @returns the number
   * of alerts
   */
  notify(): Promise<number>;
  /** Removes logs of runs that ended long ago. @returns the number of these runs */
  dropOldLogs(): Promise<number>;
  /** Unpins versions of stacks that no run needs any longer. @returns the number of runs that released theirs */
  releaseVersions(): Promise<number>;
  /** Web ports of installed software, except where a destroy runs or was requested. */
  webPorts(): Promise<readonly DeclaredWebPort[]>;
  /** The reason why nothing can be applied here; null if stacks can be applied. */
  problem(): Promise<string | null>;
  /** The program that applies stacks; null if there is none, or if it is unknown. */
  terraform(): Promise<Terraform | null>;
  /** True if anything was ever applied, by any gateway of the database. */
  isUsed(): Promise<boolean>;
  /** Sources of the providers that runs can use; null if providers come from registries. */
  mirrored(): ReadonlySet<string> | null;
  /**
   * Encrypts again, with the key in use, the inputs and states that an older key encrypted. Several gateways may run
   * this at once.
   * @returns the number of these values; 0 if the key in use is not available here
   */
  reseal(): Promise<number>;
  /** Calls back when a run of this gateway has applied or destroyed something: web ports may have changed. */
  onChanged(listener: () => void): void;
  readonly loop: RunLoop;
}

export interface RunsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly log: Log;
  readonly sealer: Sealer;
  readonly sources: RunSources;
  /** Raises an alert in the transaction of its cause. */
  readonly raiseIn: (tx: Transaction, notice: RunNotice) => Promise<void>;
  /** A UUID of this gateway. It survives restarts, and no other gateway has it meanwhile. */
  readonly holder: string;
  /** Finds what can run Terraform here. Called when it is first needed, and again until something is found. */
  readonly findRunner: () => Promise<FoundRunner>;
  /** Places that are tried before this machine; none if absent. */
  readonly containers?: ContainerRunners | null;
  /** True if runs have left folders here. Called at the start and once a minute, before the search for a runner. */
  readonly hasFolders?: () => boolean;
  /** Milliseconds between two searches for a runner that was not found. */
  readonly searchAgainMs?: number;
  /** The folder of provider packages. */
  readonly mirror?: string | null;
  /** A larger state is not stored in the database, and stays in the work folder of its run. */
  readonly stateBytesMax?: number;
  readonly atOnceMax?: number;
  readonly initMs?: number;
  readonly phaseMs?: number;
  /** Milliseconds without news of a run's machine after which the run counts as lost. */
  readonly abandonedMs?: number;
  /** Number of failed attempts to continue a run after which the run is given up. */
  readonly triesMax?: number;
  /** Hours between two drift checks of an applied run; null or absent: Headgate checks nothing by itself. */
  readonly driftHours?: number | null;
}

export function createRuns(options: RunsOptions): Runs {
  const {
    db,
    sealer,
    atOnceMax = 2,
    initMs = 300_000,
    phaseMs = 3_600_000,
    abandonedMs = 15 * 60_000,
    stateBytesMax = 64 * 1024 * 1024,
  } = options;
  const find = (id: string): Promise<Run | null> => findRun(db.sql, id);
  const cachedRunner = untilFound(options);
  const listeners: (() => void)[] = [];
  const loop = createRunLoop({
    ...options,
    claims: withEndListeners(createClaims(db.sql, options.holder), listeners),
    states: createStates(db.sql, sealer, stateBytesMax),
    plans: createPlans(db.sql, sealer),
    limits: { initMs, phaseMs },
    places: createPlaces({
      runner: async () => (await cachedRunner()).runner,
      containers: options.containers ?? null,
      hasFolders: options.hasFolders ?? (() => false),
    }),
    atOnceMax,
    abandonedMs,
    triesMax: options.triesMax ?? 15,
    find,
  });

  const starts = createStarts({ ...options, find, written: () => loop.wake() });
  const changes = createChanges({ ...options, find });
  return {
    ...starts,
    ...changes,
    find,
    list: (list) => listRuns(db.sql, list),
    async confirm(runId, author) {
      const result = await changes.confirm(runId, author);
      loop.wake();
      return result;
    },
    plan: (runId) => readPlan(db.sql, runId),
    log: (runId, after, limit) => readLog(db.sql, runId, after, limit),
    changeExpiry: (change) => changeExpiry({ ...options, find }, change),
    changeDriftCheck: (change) => changeDriftCheck({ ...options, find }, change),
    ...createJobs(options, starts, listeners),
    mirrored: mirrorReader(options),
    webPorts: () => listWebPorts(db.sql),
    problem: () => problemOf(options.containers ?? null, cachedRunner),
    // The images of Docker hosts may contain any program.
    terraform: async () => ((options.containers ?? null) === null ? (await cachedRunner()).terraform : null),
    async isUsed() {
      const [row] = await db.sql<{ used: boolean }[]>`select exists (select from installations) as used`;
      return row?.used === true;
    },
    onChanged: (listener) => void listeners.push(listener),
    loop,
  };
}

type Jobs = Pick<Runs, 'destroyExpired' | 'checkDriftOfDue' | 'notify' | 'dropOldLogs' | 'releaseVersions' | 'reseal'>;

/** Creates what gateways do regularly. */
function createJobs(options: RunsOptions, starts: Starts, listeners: readonly (() => void)[]): Jobs {
  const { driftHours = null } = options;
  return {
    async destroyExpired() {
      const requested = await destroyExpired(options, (runId) => starts.expire(runId));
      // The web addresses of what is destroyed are removed.
      if (requested > 0) for (const listener of listeners) listener();
      return requested;
    },
    checkDriftOfDue: () => checkDriftOfDue({ ...options, driftHours }, (runId) => starts.checkDrift(runId, null)),
    notify: async () => (await notifyRuns(options)) + (await notifyExpiring(options)) + (await notifyDrift(options)),
    dropOldLogs: () => dropOldLogs(options.db.sql, options.clock.now()),
    releaseVersions: () => releaseVersions(options),
    reseal: () => resealRuns(options),
  };
}

function withEndListeners(claims: Claims, listeners: readonly (() => void)[]): Claims {
  return {
    ...claims,
    async transition(run, end) {
      const isTransitioned = await claims.transition(run, end);
      if (isTransitioned && (end.status === 'APPLIED' || end.status === 'DESTROYED'))
        for (const listener of listeners) listener();
      return isTransitioned;
    },
  };
}

/** Returns the reason why nothing can be applied: no Docker host accepts runs, and nothing here can run Terraform. */
async function problemOf(
  containers: ContainerRunners | null,
  cachedRunner: () => Promise<FoundRunner>,
): Promise<string | null> {
  if (containers !== null && (await containers.next(new Map())) !== null) return null;
  const { problem } = await cachedRunner();
  const troubles = containers?.troubles().map(({ host, trouble }) => `${host}: ${trouble}`) ?? [];
  if (problem === null || troubles.length === 0) return problem;
  return `no Docker host accepts runs (${troubles.join('; ')}), and ${problem}`;
}

/**
 * Milliseconds that the mirror's sources are cached: a folder may have hundreds of packages, and stacks are listed
 * often.
 */
const mirrorKeptMs = 5000;

function mirrorReader({ mirror = null, clock }: RunsOptions): () => ReadonlySet<string> | null {
  let kept: { readonly sources: ReadonlySet<string>; readonly untilMs: number } | null = null;
  return () => {
    if (mirror === null) return null;
    const nowMs = clock.monotonicMs();
    if (kept === null || nowMs >= kept.untilMs) kept = { sources: readMirror(mirror), untilMs: nowMs + mirrorKeptMs };
    return kept.sources;
  };
}

/** Counts the runs that occupy their cluster now, on all gateways. */
export async function countActiveRuns({ sql }: Pick<Db, 'sql'>): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from runs where status in ${sql([...activeStatuses])}`;
  return row?.count ?? 0;
}

/** Returns the public ids of a cluster's pending and active runs, oldest first. */
export async function runsUnderWay(tx: Transaction, clusterId: string): Promise<readonly string[]> {
  const statuses = text.join(
    unfinishedStatuses.map((status) => text`${status}`),
    text`, `,
  );
  const rows = await tx.execute<{ id: string }>(
    text`select id from runs where cluster_id = ${clusterId} and status in (${statuses}) order by id`,
  );
  return rows.map(({ id }) => formatId('run', id));
}

/**
 * Caches a runner that was found. After a failed search it searches again later: a runner may be installed meanwhile.
 */
function untilFound({ findRunner, clock, searchAgainMs = 15_000 }: RunsOptions): () => Promise<FoundRunner> {
  let asked: Promise<FoundRunner> | null = null;
  let againAtMs = Number.POSITIVE_INFINITY;
  return () => {
    if (asked !== null && clock.monotonicMs() < againAtMs) return asked;
    const asking = findRunner();
    const searchAgainIn = (ms: number): void => void (againAtMs = clock.monotonicMs() + ms);
    asked = asking;
    againAtMs = Number.POSITIVE_INFINITY;
    asking.then(
      ({ runner }) => (runner === null ? searchAgainIn(searchAgainMs) : undefined),
      () => searchAgainIn(0),
    );
    return asking;
  };
}
