import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { EngineDriver } from './driver.ts';
import { Engine } from './engine.ts';
import type { LoadReport } from './engine-load.ts';
import type { EnginePhase, EnginePolicy } from './engine-state.ts';
import { createExternalDriver } from './external-driver.ts';
import type { AcquireResult, Lease } from './lease.ts';
import type { Environment } from './process-command.ts';
import { createProcessDriver } from './process-driver.ts';
import { createReconciler, type Reconciler } from './reconciler.ts';

export type { EngineLoad, LoadReport } from './engine-load.ts';
export type { AcquireRefusal, AcquireResult, Lease, Replica } from './lease.ts';

/** As outsiders see an engine; one that is being stopped counts as cold. */
export type EngineStatus = 'ready' | 'cold' | 'starting' | 'failed';

/** An engine for pages and the operations API. */
export interface EngineView {
  readonly engineId: string;
  readonly status: EngineStatus;
  readonly phase: EnginePhase;
  /** Milliseconds since the Unix epoch at which the phase began. */
  readonly sinceMs: number;
  /** Why it failed, in plain words; null unless the phase is `failed`. */
  readonly cause: string | null;
  /** How long the last successful start took; null before the first. */
  readonly lastStartMs: number | null;
  readonly leases: number;
  readonly waiting: number;
  readonly replicaIds: readonly string[];
}

export interface Fleet {
  /** Adopts or ends what an earlier gateway left, and begins reconciling. */
  start(): Promise<void>;
  /** `failed` for an engine that is not known. */
  status(engineId: string): EngineStatus;
  /** The warm path: synchronous, null when nothing is ready outside `exclude` (replica ids). Never starts anything. */
  tryAcquire(engineId: string, exclude?: ReadonlySet<string>): Lease | null;
  /**
   * Waits for a replica, starting the engine when it is cold; one start serves all who wait. With `exclude` (replica
   * ids that were tried) it does not wait for a start. Refusals are values; rejects when `signal` aborts, and for an
   * engine that is not known or not enabled.
   */
  acquire(
    engineId: string,
    options: { readonly signal?: AbortSignal; readonly exclude?: ReadonlySet<string> },
  ): Promise<AcquireResult>;
  /** Leases held on an engine's replicas. */
  leases(engineId: string): number;
  /** Asks an engine what it has to do. */
  readLoad(engineId: string): Promise<LoadReport>;
  /** A connect to the replica was refused: takes it out of routing unless a probe made now succeeds. */
  reportUnreachable(replicaId: string): void;
  list(): readonly EngineView[];
  /** Refuses new work, waits for leases up to each engine's drain time, ends what it runs, and returns after that. */
  close(): Promise<void>;
}

/** How a fleet treats crashes; each has a default. */
export type FleetPolicy = Omit<EnginePolicy, 'idleMs' | 'startTimeoutMs' | 'drainMs'>;

export interface FleetOptions {
  /** Disabled ones are never started. */
  readonly engines: readonly EngineDefinition[];
  /** Used by one gateway at a time. */
  readonly dataDir: string;
  /** Where child processes run: the folder that holds the engines folder. */
  readonly workingDirectory: string;
  /** The gateway's environment: references in engine files, API keys, and what children may inherit. */
  readonly env: Environment;
  readonly clock: Clock;
  readonly log: Log;
  /** Requests that may wait for one engine at once. */
  readonly queueMax?: number;
  /** Between SIGTERM and SIGKILL of a child. */
  readonly stopGraceMs?: number;
  readonly policy?: Partial<FleetPolicy>;
}

const defaultPolicy: FleetPolicy = {
  crashesMax: 5,
  backoffFirstMs: 1000,
  backoffMaxMs: 30_000,
  failedMs: 60_000,
  stableMs: 60_000,
  unreachableMs: 15_000,
};

const statusOf: Record<EnginePhase, EngineStatus> = {
  stopped: 'cold',
  starting: 'starting',
  ready: 'ready',
  draining: 'cold',
  failed: 'failed',
};

/** The engines of the gateway. Nothing runs and nothing is routed to before `start`. */
export function createFleet(options: FleetOptions): Fleet {
  const { dataDir, workingDirectory, env, log, clock, queueMax = 1000, stopGraceMs = 10_000 } = options;
  const drivers: Record<EngineDefinition['driver']['type'], EngineDriver> = {
    process: createProcessDriver({ dataDir, workingDirectory, env, log, stopGraceMs }),
    external: createExternalDriver(env),
  };
  const policy = { ...defaultPolicy, ...options.policy };
  const reconciler = createReconciler({ clock, log });
  for (const definition of options.engines.filter(({ enabled }) => enabled)) {
    const driver = drivers[definition.driver.type];
    const spec = driver.specOf(definition);
    const own = { ...policy, ...timesOf(definition) };
    reconciler.engines.set(
      spec.engineId,
      new Engine({ spec, driver, policy: own, queueMax, clock, log, wake: reconciler.wake }),
    );
  }
  return fleetOf(reconciler, Object.values(drivers), clock);
}

function timesOf({ driver }: EngineDefinition): Pick<EnginePolicy, 'idleMs' | 'startTimeoutMs' | 'drainMs'> {
  if (driver.type === 'process') return driver;
  // Nobody here starts or stops it; only the drain at the end is waited for.
  return { idleMs: Infinity, startTimeoutMs: Infinity, drainMs: 30_000 };
}

function fleetOf(reconciler: Reconciler, drivers: readonly EngineDriver[], clock: Clock): Fleet {
  const { engines } = reconciler;
  return {
    async start() {
      for (const driver of drivers) {
        const own = [...engines.values()].filter((engine) => engine.driver === driver);
        await driver.adopt(own.map(({ spec }) => spec));
        driver.onChange(reconciler.wake);
      }
      await reconciler.start();
    },
    status(engineId) {
      const engine = engines.get(engineId);
      return engine === undefined ? 'failed' : statusOf[engine.phase()];
    },
    tryAcquire: (engineId, exclude) => engines.get(engineId)?.tryAcquire(exclude) ?? null,
    async acquire(engineId, acquireOptions) {
      const engine = engines.get(engineId);
      if (engine === undefined) throw new Error(`There is no enabled engine ${JSON.stringify(engineId)}.`);
      return engine.acquire(acquireOptions);
    },
    leases: (engineId) => engines.get(engineId)?.leases() ?? 0,
    readLoad: async (engineId) => (await engines.get(engineId)?.readLoad()) ?? 'unknown',
    reportUnreachable(replicaId) {
      for (const engine of engines.values()) if (engine.reportUnreachable(replicaId)) return;
    },
    list: () => [...engines.values()].map((engine) => viewOf(engine, clock)),
    async close() {
      for (const engine of engines.values()) engine.beginClosing();
      await reconciler.close();
      await Promise.all(drivers.map((driver) => driver.close()));
    },
  };
}

function viewOf(engine: Engine, clock: Clock): EngineView {
  const { phase, sinceMs, cause, lastStartMs, leases, waiting, replicaIds } = engine.snapshot();
  return {
    engineId: engine.spec.engineId,
    status: statusOf[phase],
    phase,
    sinceMs: clock.now() - (clock.monotonicMs() - sinceMs),
    cause: cause?.publicText ?? null,
    lastStartMs,
    leases,
    waiting,
    replicaIds,
  };
}
