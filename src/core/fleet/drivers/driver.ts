import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Fence } from './fence.ts';
import type { ReplicaExit } from './replica-exit.ts';
import type { Replica } from './replica.ts';

/** An engine for a driver to run. Two specs of one engine with equal hashes are interchangeable. */
export interface EngineSpec {
  readonly engineId: string;
  readonly hash: string;
  readonly definition: EngineDefinition;
}

/** The host and the devices of a replica. */
export interface Placement {
  /** Name of a host entry; `local` for drivers that know only one machine. */
  readonly host: string;
  /** UUIDs, or the host's own device names; each device serves one replica at a time. */
  readonly gpuIds: readonly string[];
}

export interface StartRequest {
  /** Chosen by the caller, new for every start: repeated requests with one id start one replica. */
  readonly replicaId: string;
  readonly spec: EngineSpec;
  readonly placement: Placement;
  readonly fence: Fence;
}

export interface StopRequest {
  readonly fence: Fence;
  /** Time between the stop signal and SIGKILL. */
  readonly graceMs: number;
}

/** A replica as the driver finds it. The fleet relies on nothing else. */
export interface ObservedReplica {
  readonly replica: Replica;
  readonly specHash: string;
  readonly placement: Placement;
  /** Epoch under which the replica was created; null if unknown. */
  readonly epoch: bigint | null;
  /**
   * `creating` while there is nothing to probe yet: image, container, network. The endpoint is not valid in this state.
   */
  readonly state: 'creating' | 'running' | 'stopping' | 'exited';
  /** Progress while `creating`, for operators: `pulling vllm/vllm-openai:v0.32.0 43 %`. */
  readonly progress: string | null;
  /** Set while `creating`: the external scheduler finds no place with enough free devices. The fleet may make room. */
  readonly noRoom?: boolean;
  /**
   * `watched`: an external server. It gets requests at once, and is avoided while it does not answer and others do.
   * `probe`: ready once GET /health succeeds.
   */
  readonly health: 'watched' | 'probe';
  /**
   * True for an external engine whose file names no kind. It gets requests once it was asked, so that the requests of
   * organizations are kept apart from the first one on.
   */
  readonly findsKind?: boolean;
  /** Set in state `exited`. The leader observes such a replica once, then cleans it up. */
  readonly exit: ReplicaExit | null;
}

export interface Gpu {
  readonly id: string;
  /** null if unknown. */
  readonly memoryBytes: number | null;
  /** Product name or profile, such as `NVIDIA H100 80GB HBM3`; null if unknown. */
  readonly profile: string | null;
}

export interface HostReport {
  readonly name: string;
  /** Names that engine files may use in place of one host. */
  readonly pools: readonly string[];
  /** False: the state of the host is unknown, and its replicas are assumed to keep running. */
  readonly reachable: boolean;
  /** Why the host is unreachable, or what is unknown about it, for operators; absent if there is nothing to report. */
  readonly trouble?: string;
  readonly gpus: readonly Gpu[];
  /** Memory that engines may use together; absent if it is not counted. */
  readonly memoryBytes?: number;
}

/** Devices and memory of a host that are in use. */
export interface Holding {
  readonly engineId: string | null;
  readonly placement: Placement;
  readonly memoryBytes: number;
}

/**
 * A container or process with our label that belongs to no engine of the files: listed for the operator, never touched.
 */
export interface Orphan {
  readonly host: string;
  /** Name on its host. */
  readonly name: string;
  readonly engineId: string | null;
  /** Devices in use while the orphan exists. */
  readonly gpuIds: readonly string[];
  readonly memoryBytes: number;
  /** Command with which an operator on that host ends the orphan. */
  readonly endedBy: string;
}

export interface Observation {
  readonly replicas: readonly ObservedReplica[];
  readonly hosts: readonly HostReport[];
  readonly orphans: readonly Orphan[];
}

/** Use of a device. The memory is checked so that no engine starts into memory left over from another. */
export interface GpuUse {
  readonly gpuId: string;
  readonly usedBytes: number;
  readonly totalBytes: number;
  /** Share of the last second or less in which the device computed; null if the driver does not report it. */
  readonly busy: number | null;
  /** Programs that use memory there, as the driver names them. */
  readonly processes: readonly string[];
}

/** Output and download of a replica since its start, which show if the start makes progress. */
export interface StartActivity {
  /** Changes with each line of output, and with each report of an image pull. */
  readonly output: string;
  /** Bytes of the weights in the cache, or bytes received over the network; null if they are not counted. */
  readonly downloadedBytes: number | null;
}

export interface LogOptions {
  readonly tailLines: number;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

/**
 * Runs engines somewhere. Every change is idempotent by replica id and returns once it has begun; `observe` reports all
 * replicas, whoever started them. Several gateways observe; only the leader makes changes.
 */
export interface EngineDriver {
  /** Returns the spec of a definition. Its hash covers everything that would make a running replica the wrong one. */
  specOf(definition: EngineDefinition): EngineSpec;
  /** Reads what an earlier gateway left. Called once, before the first `observe`. `specs` are those of the files. */
  open(specs: readonly EngineSpec[]): Promise<void>;
  /** Sets the specs after the files were reloaded. */
  setSpecs(specs: readonly EngineSpec[]): void;
  /**
   * Reports replicas, hosts and orphans.
   * @param epoch under which this gateway leads; null if another gateway leads. Replicas that were created under an
   *   earlier epoch and not started will never be started.
   * @throws if nothing at all could be observed; an unreachable host is part of the result
   */
  observe(epoch?: bigint | null): Promise<Observation>;
  /**
   * Starts a replica. A failure shows up in `observe` as `exited` with its cause.
   * @throws FenceLostError
   */
  start(request: StartRequest): Promise<void>;
  /**
   * Signals a replica, and kills it after the grace time; does nothing if it does not exist.
   * @throws FenceLostError
   */
  stop(replicaId: string, request: StopRequest): Promise<void>;
  /**
   * Cleans up the remains of an exited replica, including its log.
   * @throws FenceLostError
   */
  forget(replicaId: string, fence: Fence): Promise<void>;
  /** Returns the use of devices, with their programs; null if they cannot be read. */
  probeGpus(placement: Placement): Promise<readonly GpuUse[] | null>;
  /** Returns the use of devices, without their programs; null if they cannot be read. Logs no failure. */
  readGpus(placement: Placement): Promise<readonly GpuUse[] | null>;
  /** Returns what a starting replica has written; null if that cannot be read. */
  activity(replicaId: string): Promise<StartActivity | null>;
  /** Yields lines of a replica's output, oldest first. The replica runs, or has exited and is not forgotten yet. */
  logs(replicaId: string, options: LogOptions): AsyncIterable<string>;
  /** Calls the listener soon after any change; regular observation is still needed. */
  onChange(listener: () => void): void;
  /** Ends replicas that cannot outlive this gateway and waits for their end; containers keep running. */
  close(): Promise<void>;
}

export type DriverType = EngineSpec['definition']['driver']['type'];
