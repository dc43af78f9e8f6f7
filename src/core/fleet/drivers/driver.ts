import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Fence } from './fence.ts';
import type { ReplicaExit } from './replica-exit.ts';
import type { Replica } from './replica.ts';

/** What a driver is asked to run. Two specs of one engine with the same hash are interchangeable. */
export interface EngineSpec {
  readonly engineId: string;
  readonly hash: string;
  readonly definition: EngineDefinition;
}

/** Where a replica runs, and which devices are its own. */
export interface Placement {
  /** Name of a host entry; `local` for drivers that know one machine only. */
  readonly host: string;
  /** UUIDs, or whatever the host calls its devices; each is given to one replica at a time. */
  readonly gpuIds: readonly string[];
}

export interface StartRequest {
  /** Chosen by who asks, new for every start: asking for one twice starts it once. */
  readonly replicaId: string;
  readonly spec: EngineSpec;
  readonly placement: Placement;
  readonly fence: Fence;
}

export interface StopRequest {
  readonly fence: Fence;
  /** Between the polite signal and SIGKILL. */
  readonly graceMs: number;
}

/** A replica as the driver finds it; the fleet believes nothing else. */
export interface ObservedReplica {
  readonly replica: Replica;
  readonly specHash: string;
  readonly placement: Placement;
  /** Under which epoch it was made; null when unknown. */
  readonly epoch: bigint | null;
  /** `creating` until there is something to probe: image, container, network; its endpoint is not to be used yet. */
  readonly state: 'creating' | 'running' | 'stopping' | 'exited';
  /** What it is busy with while `creating`, for operators: `pulling vllm/vllm-openai:v0.29.0 43 %`. */
  readonly progress: string | null;
  /** While `creating`: whoever chooses the place finds none with enough devices free; room can be made for it. */
  readonly noRoom?: boolean;
  /**
   * `watched`: somebody else runs it, it is routed to at once, and while it does not answer it is left alone for others
   * that do; `probe`: ready when GET /health says so.
   */
  readonly health: 'watched' | 'probe';
  /** Set when state is `exited`; such a replica is observed once by whoever leads, and then cleaned away. */
  readonly exit: ReplicaExit | null;
}

export interface Gpu {
  readonly id: string;
  /** null when nobody said how much it has. */
  readonly memoryBytes: number | null;
  /** Product name or profile, as `NVIDIA H100 80GB HBM3`; null when unknown. */
  readonly profile: string | null;
}

export interface HostReport {
  readonly name: string;
  /** Names that engine files may ask for instead of one host. */
  readonly pools: readonly string[];
  /** False: nothing is known of it now, and what it ran before is believed to run on. */
  readonly reachable: boolean;
  /** Why it is not reachable, or what is not known of it, for operators; absent when there is nothing to say. */
  readonly trouble?: string;
  readonly gpus: readonly Gpu[];
  /** Memory that engines may take together; absent where nobody counts it. */
  readonly memoryBytes?: number;
}

/** Devices and memory of a host that something has. */
export interface Holding {
  readonly engineId: string | null;
  readonly placement: Placement;
  readonly memoryBytes: number;
}

/** Something that bears our label and belongs to no engine of the files: listed for the operator, never touched. */
export interface Orphan {
  readonly host: string;
  /** Its name there. */
  readonly name: string;
  readonly engineId: string | null;
  /** Devices that it has as long as it is there. */
  readonly gpuIds: readonly string[];
  readonly memoryBytes: number;
  /** The command that ends it, for an operator on that host. */
  readonly endedBy: string;
}

export interface Observation {
  readonly replicas: readonly ObservedReplica[];
  readonly hosts: readonly HostReport[];
  readonly orphans: readonly Orphan[];
}

/** What a device's memory is used by, so that the next engine does not start into another's remains. */
export interface GpuUse {
  readonly gpuId: string;
  readonly usedBytes: number;
  readonly totalBytes: number;
  /** Programs that hold memory there, as the driver calls them. */
  readonly processes: readonly string[];
}

export interface LogOptions {
  readonly tailLines: number;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

/**
 * Runs engines somewhere. Every change is idempotent by replica id and returns when it is under way; `observe` says
 * what there is, whoever started it. Several gateways observe; only the one that leads changes anything.
 */
export interface EngineDriver {
  /** The spec of a definition, with a hash over all that would make a running replica the wrong one. */
  specOf(definition: EngineDefinition): EngineSpec;
  /** Reads what an earlier gateway left; called once, before the first `observe`. `specs` are those of the files. */
  open(specs: readonly EngineSpec[]): Promise<void>;
  /** The files were read again. */
  setSpecs(specs: readonly EngineSpec[]): void;
  /**
   * @param epoch under which this gateway leads; null when another does. What was made under an earlier one, and not
   *   started, will not be started any more.
   * @throws when nothing could be learned at all; a host that cannot be reached is part of the answer
   */
  observe(epoch?: bigint | null): Promise<Observation>;
  /**
   * Whatever goes wrong shows up in `observe` as `exited` with the cause.
   * @throws FenceLostError
   */
  start(request: StartRequest): Promise<void>;
  /**
   * Signals it and has it killed after the grace time; nothing for one that is not there.
   * @throws FenceLostError
   */
  stop(replicaId: string, request: StopRequest): Promise<void>;
  /**
   * Cleans away what is left of an exited replica, its log included.
   * @throws FenceLostError
   */
  forget(replicaId: string, fence: Fence): Promise<void>;
  /** null where devices cannot be asked. */
  probeGpus(placement: Placement): Promise<readonly GpuUse[] | null>;
  /** Lines of a replica's output, oldest first, running or exited and not yet forgotten. */
  logs(replicaId: string, options: LogOptions): AsyncIterable<string>;
  /** Calls the listener soon after anything changed; observing now and then is still needed. */
  onChange(listener: () => void): void;
  /** Ends what cannot outlive this gateway and waits for it; containers run on. */
  close(): Promise<void>;
}

export type DriverType = EngineSpec['definition']['driver']['type'];
