import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Replica } from './lease.ts';

/** What a driver is asked to run. Two specs of one engine with the same hash are interchangeable. */
export interface EngineSpec {
  readonly engineId: string;
  readonly hash: string;
  readonly definition: EngineDefinition;
}

/** How a replica ended. `asked` tells a stop that was wanted from a crash, which an exit code cannot. */
export interface ReplicaExit {
  readonly asked: boolean;
  /** null when a signal ended it, when it never ran, or when the gateway was not its parent. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** `ENOENT` and the like when the program could not be started at all. */
  readonly spawnErrorCode: string | null;
  /** The end of what it wrote, bounded; for finding the cause, never for clients. */
  readonly logTail: string;
}

/** A replica as the driver finds it; the fleet believes nothing else. */
export interface ObservedReplica {
  readonly replica: Replica;
  readonly specHash: string;
  readonly state: 'running' | 'stopping' | 'exited';
  /** `assumed`: somebody else watches over it, route to it at once; `probe`: ready when GET /health says so. */
  readonly health: 'assumed' | 'probe';
  /** Set when state is `exited`; such a replica is observed once and then forgotten. */
  readonly exit: ReplicaExit | null;
}

/**
 * Runs engines somewhere. Declarative: `apply` says how many replicas of a spec there should be and returns when that
 * is under way; `observe` says what there is, whoever started it. Containers and services fit the same calls.
 */
export interface EngineDriver {
  /** The spec of a definition, with a hash over all that would make a running replica the wrong one. */
  specOf(definition: EngineDefinition): EngineSpec;
  /** Finds what an earlier gateway left, keeps what runs one of `specs`, ends the rest. Called once, first. */
  adopt(specs: readonly EngineSpec[]): Promise<void>;
  /** Wants `count` replicas of `spec`, and none of the engine's other specs. */
  apply(spec: EngineSpec, count: number): Promise<void>;
  observe(): Promise<readonly ObservedReplica[]>;
  /** Calls the listener soon after anything changed; observing now and then is still needed. */
  onChange(listener: () => void): void;
  /** Ends everything it runs and waits for it. */
  close(): Promise<void>;
}
