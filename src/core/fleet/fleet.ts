import type { AcquireResult, Lease } from './lease.ts';

export type { AcquireRefusal, AcquireResult, Lease, Replica } from './lease.ts';

/** As outsiders see an engine; one that is being stopped counts as cold. */
export type EngineStatus = 'ready' | 'cold' | 'starting' | 'failed';

/** An engine for pages and the operations API. */
export interface EngineView {
  readonly engineId: string;
  readonly status: EngineStatus;
  readonly phase: 'stopped' | 'starting' | 'ready' | 'draining' | 'failed';
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
   * Waits for a replica, starting the engine when it is cold; one start serves all who wait. Refusals are values.
   * Throws when `signal` aborts, and for an engine that is not known.
   */
  acquire(
    engineId: string,
    options: { readonly signal?: AbortSignal; readonly exclude?: ReadonlySet<string> },
  ): Promise<AcquireResult>;
  /** A connect to the replica was refused: takes it out of routing unless a probe made now succeeds. */
  reportUnreachable(replicaId: string): void;
  list(): readonly EngineView[];
  /** Refuses new work, waits for leases up to each engine's drain time, ends what it runs, and returns after that. */
  close(): Promise<void>;
}
