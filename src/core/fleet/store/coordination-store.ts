import type { Transaction } from '#base/database/database.ts';
import type { FailureCause, Fence } from '#core/fleet/drivers/drivers.ts';

/** An operator's command to an engine, beyond its file. */
export type EngineCommand = 'start' | 'stop' | 'restart' | 'reset';

/** A command as the leader receives it. */
export interface PendingCommand {
  /** Decimal digits; grows with every command of the scope. */
  readonly id: string;
  readonly engineId: string;
  readonly kind: EngineCommand;
}

export interface NotedCommand {
  readonly id: string;
  readonly committed: () => void;
}

/** One gateway's demand for engines, read by the leader. */
export interface Demand {
  readonly gatewayId: string;
  /** The newest published version that this gateway routes by. */
  readonly seenVersion: bigint;
  readonly engines: Readonly<Record<string, EngineDemand>>;
}

export interface EngineDemand {
  /** Requests that wait for a replica of the engine on this gateway. */
  readonly waiting: number;
  /** Milliseconds since this gateway last used the engine, at the time of the report; null while it uses the engine. */
  readonly idleMs: number | null;
  /** Leases by replica id. */
  readonly leases: Readonly<Record<string, number>>;
  /** Tokens of the longest prompt that a replica still reads, by replica id; only long ones. */
  readonly longPrompts?: Readonly<Record<string, number>>;
}

/** The leader's published state of one engine; all gateways route and answer by it. */
export interface PublishedEngine {
  readonly engineId: string;
  /** Hash of the file's spec that the leader uses. */
  readonly specHash: string;
  /** `held`: stopped by a command. `off`: kept off by the schedule of its file. */
  readonly phase: 'stopped' | 'starting' | 'ready' | 'draining' | 'failed' | 'held' | 'off';
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Why the engine does not run: set in `failed`, and in `starting` if the last start failed. */
  readonly cause: FailureCause | null;
  /** Milliseconds since the Unix epoch before which a failed engine is not restarted; null otherwise. */
  readonly retryAtMs: number | null;
  /**
   * Consecutive failures; the engine is given up after `crashesMax`. Absent if a leader of an older version published.
   */
  readonly failures?: number;
  /** Counts failed starts: a request that has waited since before the last one is answered with its cause. */
  readonly failedStarts: number;
  /** Counts replicas that were found wedged. Absent if a leader of an older version published. */
  readonly wedges?: number;
  readonly replicas: readonly PublishedReplica[];
  /** Last measured start times, newest last, in milliseconds from the start request to traffic. */
  readonly startTimesMs: readonly number[];
  /** The rollout that is running or was rejected, with the hash of its spec and a text; null if there is none. */
  readonly rollout: { readonly specHash: string; readonly state: 'checking' | 'refused'; readonly text: string } | null;
  /** Id of the newest command that was carried out; null or absent: none is remembered. */
  readonly lastCommand?: string | null;
  /** The newest start; null or absent: none is remembered. */
  readonly lastStart?: StartTimeline | null;
}

/**
 * Phase of a start. `requested`: a place is chosen, and engines there end. `creating`: the container or process is
 * created. `loading`: it runs, and its health check does not succeed yet. `checking`: canaries run.
 */
export type StartPhase =
  | 'requested'
  | 'pulling'
  | 'creating'
  | 'downloading'
  | 'loading'
  | 'checking'
  | 'ready'
  | 'failed'
  | 'canceled';

/** The phases of a start, oldest first. */
export interface StartTimeline {
  readonly replicaId: string;
  /** Times are milliseconds since the Unix epoch. */
  readonly steps: readonly { readonly phase: StartPhase; readonly atMs: number }[];
  /** Why the start failed; null if it did not. */
  readonly cause: FailureCause | null;
}

/** A download of weights. */
export interface Download {
  /** Bytes so far, with those of earlier starts. */
  readonly bytes: number;
  /** Between the last two readings. */
  readonly bytesPerSecond: number;
}

export interface PublishedReplica {
  readonly id: string;
  readonly specHash: string;
  /** Only `ready` replicas get new requests. */
  readonly state: 'creating' | 'starting' | 'checking' | 'ready' | 'draining' | 'stopping' | 'asleep' | 'waking';
  readonly host: string;
  readonly gpuIds: readonly string[];
  readonly progress: string | null;
  /** The download of weights that is in progress; absent if there is none. */
  readonly download?: Download;
  readonly sinceMs: number;
  /** True if the replica generates nothing: requests that have no part of an answer are sent elsewhere. */
  readonly wedged?: true;
  /** Why aborts by id cannot be relied on; null or absent if there is no such reason. */
  readonly abortFault?: string | null;
}

export interface Published {
  /** Grows with every change, also across leaders. */
  readonly version: bigint;
  readonly epoch: bigint;
  readonly engines: readonly PublishedEngine[];
}

/** The newest definition of an engine that passed its checks, kept for future leaders. */
export interface GoodSpec {
  readonly engineId: string;
  readonly specHash: string;
  /** One JSON object, kept exactly as written. */
  readonly definition: string;
  /** Grows with every write. */
  readonly revision: bigint;
}

/** The right to change engines. One gateway at a time has it per scope. */
export interface Leadership {
  /** The fence of this gateway while it leads; null while another gateway leads, or the store is unreachable. */
  current(): Fence | null;
  /** Called when this gateway began or ceased to lead. */
  onChange(listener: () => void): void;
  start(): Promise<void>;
  /** Returns the lease, so that another gateway takes over at once. */
  close(): Promise<void>;
}

/**
 * The store that the leader and the other gateways of a scope share.
 *
 * Calls reject if the store does not answer in time; the result of a write is then unknown. `start`, `close` and
 * `onChange` never fail.
 */
export interface CoordinationStore {
  /** Started and closed with the store. */
  readonly leadership: Leadership;
  /** Leader only. @returns the published version @throws FenceLostError if the fence does not hold */
  publish(fence: Fence, engines: readonly PublishedEngine[]): Promise<bigint>;
  /** Returns the last published state of any gateway; null if none was ever published. */
  read(): Promise<Published | null>;
  /** Replaces this gateway's own demand. */
  report(demand: Omit<Demand, 'gatewayId'>): Promise<void>;
  /** Returns the demands of all live gateways, including this one. */
  demands(): Promise<readonly Demand[]>;
  /**
   * Records an operator's command for the leader. Replaces a command to the same engine that the leader has not read
   * yet.
   *
   * @param tx records the command in this transaction, or not at all
   * @returns its id, and `committed`, to be called after the commit: it wakes the gateways that wait for commands
   */
  command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<NotedCommand>;
  /** Leader only: takes the commands not taken yet, oldest first. Taking is final. Empty if the fence does not hold. */
  takeCommands(fence: Fence): Promise<readonly PendingCommand[]>;
  /** Returns the good specs of all engines of the scope, also of engines without a file. */
  goodSpecs(): Promise<readonly GoodSpec[]>;
  /**
   * Leader only: replaces the kept spec that has this revision; 0n if none is kept for the engine.
   * @returns the new revision; null, without a write, if the fence does not hold or another spec was kept since
   */
  keepGoodSpec(fence: Fence, spec: GoodSpec): Promise<bigint | null>;
  /** Leader only. @returns true if the spec was dropped; false if the fence does not hold or another was kept since */
  dropGoodSpec(fence: Fence, spec: Pick<GoodSpec, 'engineId' | 'revision'>): Promise<boolean>;
  /**
   * Calls the listener soon after another gateway published a change; on the leader also after reports and commands.
   */
  onChange(listener: () => void): void;
  start(): Promise<void>;
  close(): Promise<void>;
}
