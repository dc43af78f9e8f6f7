import type { EngineDefinition, EngineFilesState, EngineFolder } from '#core/catalog/catalog.ts';
import type { EngineSamples, LogLine, LogOptions, ReplicaBounds, StartTimeline } from '#core/fleet/fleet.ts';

/** Interface through which the operations API reads fleet and engine files; the composition root provides it. */

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
  /** Work in progress before the replica runs; null if there is nothing to report. */
  readonly progress: string | null;
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Running requests of this gateway on the replica. */
  readonly leases: number;
  /** Result of this gateway's last probe; null before the first. */
  readonly healthy: boolean | null;
  /** Version of vLLM; null for other engines, and before the replica was asked. */
  readonly version: { readonly name: string | null; readonly isTried: boolean } | null;
  /** Deployment of the engine file that the replica is; null where the file lists none. */
  readonly deployment: { readonly name: string; readonly upstreamModel: string; readonly weight: number } | null;
}

export interface OperatedEngine {
  readonly engineId: string;
  readonly phase: 'stopped' | 'starting' | 'ready' | 'draining' | 'retrying' | 'failed' | 'held' | 'off';
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Why the engine does not run, in plain words; null if no failure counts. */
  readonly cause: string | null;
  /** Details of the cause, only for operators. */
  readonly causeDetail: string | null;
  /**
   * Time of the automatic retry, in milliseconds since the Unix epoch; null if only a request or command starts the
   * engine.
   */
  readonly retryAtMs: number | null;
  /** Consecutive failures. */
  readonly failures: number;
  readonly kind: EngineDefinition['kind'];
  readonly warnings: readonly string[];
  readonly replicas: readonly OperatedReplica[];
  /** Running and waiting requests at this gateway. */
  readonly leases: number;
  readonly waiting: number;
  /** Start times, newest last. */
  readonly startTimesMs: readonly number[];
  /** The newest start; null if none is known. */
  readonly lastStart: StartTimeline | null;
  readonly rollout: { readonly state: 'checking' | 'refused'; readonly text: string } | null;
  readonly bounds: ReplicaBounds;
}

export interface OperatedHost {
  readonly name: string;
  readonly pools: readonly string[];
  readonly reachable: boolean;
  /** Why the host is unreachable, or what is unknown about it. */
  readonly trouble?: string;
  readonly gpus: readonly {
    readonly id: string;
    readonly memoryBytes: number | null;
    readonly profile: string | null;
  }[];
  /** Memory for all processes together; absent if none run. */
  readonly memoryBytes?: number;
}

/** A container or process of Headgate's without an engine file. */
export interface OperatedOrphan {
  readonly host: string;
  readonly name: string;
  readonly engineId: string | null;
  readonly gpuIds: readonly string[];
  /** Command that ends the orphan, for a shell on its host. */
  readonly endedBy: string;
}

/** A value that differs between the gateways of the database; null for gateways without the value. */
export interface OperatedDifference {
  readonly kind: string;
  readonly name: string;
  readonly values: readonly { readonly value: string | null; readonly gateways: readonly string[] }[];
  readonly forMs: number;
  /** True if the difference is older than a rollout takes. */
  readonly isOverdue: boolean;
}

export interface EngineOperations {
  /** Returns the definitions in the engine files, disabled engines included. */
  definitions(): readonly EngineDefinition[];
  /** Returns the state of the loaded files. */
  files(): EngineFilesState;
  /** The folder with the engine files of this gateway. */
  readonly folder: Pick<EngineFolder, 'textOf' | 'check'>;
  /** Returns the differences between the live gateways. */
  differences(): readonly OperatedDifference[];
  /** Returns ids of models whose price in this gateway's file is not in effect: another gateway's file differs. */
  pendingPrices(): readonly string[];
  /** Returns the present state of the enabled engines. */
  list(): readonly OperatedEngine[];
  /** Returns this gateway's samples of an engine in the last hour. */
  samples(engineId: string): EngineSamples;
  /** Yields log lines of one replica, or of all replicas if `replicaId` is null. */
  logs(engineId: string, replicaId: string | null, request: LogOptions): AsyncIterable<LogLine>;
  hosts(): readonly OperatedHost[];
  orphans(): readonly OperatedOrphan[];
}

/** The requests that this gateway serves, as the inference path knows them. */
export interface RunningRequests {
  /** Oldest first. */
  runningOf(engineId: string): readonly OperatedRequest[];
  /** @returns false if no request with this id runs for a model of the engine */
  cancel(engineId: string, requestId: string): boolean;
}

export interface OperatedRequest {
  readonly requestId: string;
  readonly path: string;
  readonly modelId: string;
  readonly key: { readonly id: string; readonly organizationId: string };
  readonly endUser: string | null;
  readonly state: 'queued' | 'processing' | 'answering';
}
