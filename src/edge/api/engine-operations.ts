import type { EngineDefinition, EngineFilesState } from '#core/catalog/catalog.ts';
import type { LogLine, LogOptions } from '#core/fleet/fleet.ts';

/** What the operations API reads of the fleet and of the engine files; the composition root provides it. */

export type ReplicaState =
  | 'creating'
  | 'starting'
  | 'checking'
  | 'ready'
  | 'draining'
  | 'stopping'
  | 'asleep'
  | 'waking';

/** A replica as the leader publishes it. */
export interface OperatedReplica {
  readonly id: string;
  readonly state: ReplicaState;
  readonly host: string;
  readonly gpuIds: readonly string[];
  /** What it is busy with before it runs; null when there is nothing to report. */
  readonly progress: string | null;
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Requests of this gateway that run there. */
  readonly leases: number;
  /** As this gateway's own probes found it; null before the first. */
  readonly healthy: boolean | null;
}

export interface OperatedEngine {
  readonly engineId: string;
  readonly phase: 'stopped' | 'starting' | 'ready' | 'draining' | 'retrying' | 'failed' | 'held';
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Why it does not run, in plain words; null when no failure counts. */
  readonly cause: string | null;
  /** Details of the cause, for operators alone. */
  readonly causeDetail: string | null;
  /** When it is tried again by itself, milliseconds since the Unix epoch; null: when a request or a command asks. */
  readonly retryAtMs: number | null;
  /** Failures in a row. */
  readonly failures: number;
  readonly replicas: readonly OperatedReplica[];
  /** Requests that run and wait at this gateway. */
  readonly leases: number;
  readonly waiting: number;
  /** Newest last. */
  readonly startTimesMs: readonly number[];
  readonly rollout: { readonly state: 'checking' | 'refused'; readonly text: string } | null;
}

export interface OperatedHost {
  readonly name: string;
  readonly pools: readonly string[];
  readonly reachable: boolean;
  /** Why not, or what is not known of it. */
  readonly trouble?: string;
  readonly gpus: readonly {
    readonly id: string;
    readonly memoryBytes: number | null;
    readonly profile: string | null;
  }[];
  /** What processes may take together; absent where none run. */
  readonly memoryBytes?: number;
}

/** Something that Headgate made and no engine file knows. */
export interface OperatedOrphan {
  readonly host: string;
  readonly name: string;
  readonly engineId: string | null;
  readonly gpuIds: readonly string[];
  /** A command for that host. */
  readonly endedBy: string;
}

/** Something that the gateways of the database have in several values; null: these gateways do not have it. */
export interface OperatedDifference {
  readonly kind: string;
  readonly name: string;
  readonly values: readonly { readonly value: string | null; readonly gateways: readonly string[] }[];
  readonly forMs: number;
  /** For longer than a rollout takes. */
  readonly isOverdue: boolean;
}

export interface EngineOperations {
  /** What the files say, disabled engines too. */
  definitions(): readonly EngineDefinition[];
  /** Which files those are. */
  files(): EngineFilesState;
  /** What differs between the gateways that live. */
  differences(): readonly OperatedDifference[];
  /** Ids of models whose price in the file here does not apply, since another gateway's file has another. */
  pendingPrices(): readonly string[];
  /** The enabled ones, as they are. */
  list(): readonly OperatedEngine[];
  /** Of one replica, or of all where it is null. */
  logs(engineId: string, replicaId: string | null, request: LogOptions): AsyncIterable<LogLine>;
  hosts(): readonly OperatedHost[];
  orphans(): readonly OperatedOrphan[];
}
