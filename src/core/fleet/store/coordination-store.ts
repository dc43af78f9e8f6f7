import type { Transaction } from '#base/db.ts';
import type { FailureCause, Fence } from '#core/fleet/drivers/drivers.ts';

/** What an operator wants of an engine, beyond what its file says. */
export type EngineCommand = 'start' | 'stop' | 'restart' | 'reset';

/** A command as whoever leads takes it. */
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

/** One gateway's need of engines, for whoever leads. */
export interface Demand {
  readonly gatewayId: string;
  /** The newest published version that this gateway routes by. */
  readonly seenVersion: bigint;
  readonly engines: Readonly<Record<string, EngineDemand>>;
}

export interface EngineDemand {
  /** Requests that wait for a replica there. */
  readonly waiting: number;
  /** Milliseconds since this gateway last used the engine, at the time of the report; null while it uses it. */
  readonly idleMs: number | null;
  /** Leases by replica id. */
  readonly leases: Readonly<Record<string, number>>;
}

/** What the leader says of one engine; everybody routes and answers by it. */
export interface PublishedEngine {
  readonly engineId: string;
  /** Of the file that the leader goes by. */
  readonly specHash: string;
  readonly phase: 'stopped' | 'starting' | 'ready' | 'draining' | 'failed' | 'held';
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
  /** Why it does not run: set in `failed`, and in `starting` when the last start failed. */
  readonly cause: FailureCause | null;
  /** Milliseconds since the Unix epoch before which a failed engine is not started again; null otherwise. */
  readonly retryAtMs: number | null;
  /** Failures in a row, of which `crashesMax` give the engine up; absent of a leader of an older version. */
  readonly failures?: number;
  /** Counts starts that failed: a request that waits since before the last one is answered with its cause. */
  readonly failedStarts: number;
  readonly replicas: readonly PublishedReplica[];
  /** Measured start times, newest last, a few, milliseconds from the start request to traffic. */
  readonly startTimesMs: readonly number[];
  /** The rollout that did not go in, in plain words with its spec hash; null when there is none. */
  readonly rollout: { readonly specHash: string; readonly state: 'checking' | 'refused'; readonly text: string } | null;
  /** Id of the newest command that was carried out; null or absent: none that is remembered. */
  readonly lastCommand?: string | null;
}

export interface PublishedReplica {
  readonly id: string;
  readonly specHash: string;
  /** Only `ready` ones take new requests. */
  readonly state: 'creating' | 'starting' | 'checking' | 'ready' | 'draining' | 'stopping' | 'asleep' | 'waking';
  readonly host: string;
  readonly gpuIds: readonly string[];
  readonly progress: string | null;
  readonly sinceMs: number;
}

export interface Published {
  /** Grows with every change, also over changes of leaders. */
  readonly version: bigint;
  readonly epoch: bigint;
  readonly engines: readonly PublishedEngine[];
}

/** The newest definition of an engine that passed its checks, as it is kept for the leaders to come. */
export interface GoodSpec {
  readonly engineId: string;
  readonly specHash: string;
  /** One JSON object, kept as it is written. */
  readonly definition: string;
  /** Grows with every write. */
  readonly revision: bigint;
}

/** Who may change what runs. One at a time over all gateways of a scope. */
export interface Leadership {
  /** The fence of this gateway while it leads; null while another does, or nobody can be asked. */
  current(): Fence | null;
  /** Called when it began or ceased to lead. */
  onChange(listener: () => void): void;
  start(): Promise<void>;
  /** Gives the lease back, so that another takes over at once. */
  close(): Promise<void>;
}

/**
 * What the leader of a scope and the gateways that route write for each other.
 *
 * What is asked of a store rejects when its store does not answer in time; nothing is known then of a write.
 * `start`, `close` and `onChange` never fail.
 */
export interface CoordinationStore {
  /** Begun and ended with the store. */
  readonly leadership: Leadership;
  /** Leader only. @returns the version under which it is known @throws FenceLostError when the fence does not hold */
  publish(fence: Fence, engines: readonly PublishedEngine[]): Promise<bigint>;
  /** What was published last by whoever; null when nothing ever was. */
  read(): Promise<Published | null>;
  /** Writes this gateway's own need in place of the last one. */
  report(demand: Omit<Demand, 'gatewayId'>): Promise<void>;
  /** The demands of all live gateways, this one included. */
  demands(): Promise<readonly Demand[]>;
  /**
   * An operator's command, for whoever leads; the newest replaces one of the same engine that was not taken yet.
   *
   * @param tx it is noted in this transaction, or not at all
   * @returns its id, and what is to be called once that is committed: it wakes who waits for commands
   */
  command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<NotedCommand>;
  /** Leader only: commands not taken yet, oldest first; taking them is final. None when the fence does not hold. */
  takeCommands(fence: Fence): Promise<readonly PendingCommand[]>;
  /** Of all engines of the scope, also of those whose files are gone. */
  goodSpecs(): Promise<readonly GoodSpec[]>;
  /**
   * Leader only: keeps a spec in place of the one that has its revision; 0n when none is kept of its engine.
   * @returns its own revision; null, and nothing is written, when the fence does not hold or another was kept since
   */
  keepGoodSpec(fence: Fence, spec: GoodSpec): Promise<bigint | null>;
  /**
   * Leader only. @returns whether none is kept any more; false when the fence does not hold or another was kept since
   */
  dropGoodSpec(fence: Fence, spec: Pick<GoodSpec, 'engineId' | 'revision'>): Promise<boolean>;
  /**
   * Calls the listener soon after another gateway published something; the leader's also after reports and commands.
   */
  onChange(listener: () => void): void;
  start(): Promise<void>;
  close(): Promise<void>;
}
