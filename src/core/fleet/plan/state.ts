import type { EngineSpec, FailureCause, Placement } from '#core/fleet/drivers/drivers.ts';
import type { ReplicaBounds } from '#core/fleet/policy.ts';
import type { Download, PublishedEngine, PublishedReplica, StartTimeline } from '#core/fleet/store/store.ts';

/**
 * The leader's knowledge of each engine and replica, kept between two reconciliations. All times are monotonic
 * milliseconds.
 */
export interface LeaderState {
  readonly engines: readonly EngineState[];
  /** Memory of each device, by host and device. */
  readonly gpus: ReadonlyMap<string, GpuMemory>;
  /** The last processes that ended, oldest first. Their memory may be the memory that another process lacked. */
  readonly ends: readonly End[];
}

export interface End {
  /** Engine and spec as one text, like `runs` of an occupant. */
  readonly runs: string;
  readonly atMs: number;
  readonly wasReady: boolean;
}

export interface GpuMemory {
  /** Bytes in use before any replica of ours ran on the device; null if unknown. */
  readonly baselineBytes: number | null;
  readonly touched: boolean;
}

/** State of a replica. `lost`: its host is unreachable. A lost replica is assumed to run and to keep its devices. */
export type ReplicaPhase = PublishedReplica['state'] | 'lost';

/** Why a replica gets no more requests. `idle`, `scale` and `sleep` are reversed if the replica is needed again. */
export type DrainReason = 'idle' | 'scale' | 'sleep' | 'room' | 'rollout' | 'held' | 'off' | 'removed' | 'closing';

export interface Drain {
  readonly reason: DrainReason;
  /** When the drain stops waiting for running requests. */
  readonly deadlineMs: number;
  /** Published version by which all gateways learn of the drain; null until published. */
  readonly version: bigint | null;
}

export interface ReplicaState {
  readonly id: string;
  readonly specHash: string;
  /** Requested at the start, then updated to the observed placement. */
  placement: Placement;
  phase: ReplicaPhase;
  sinceMs: number;
  /** When this leader requested the start; null for a replica that the leader found running. */
  readonly startRequestedAtMs: number | null;
  /** True once the driver has reported the replica. */
  observed: boolean;
  /** When a start, check or wake-up is late. */
  deadlineMs: number;
  /** When the replica first became ready; null before. */
  readyAtMs: number | null;
  /** Published version with which all gateways send requests to the replica; null until published. */
  readyVersion: bigint | null;
  drain: Drain | null;
  /** True if the replica must be replaced although its spec has not changed. */
  stale: boolean;
  progress: string | null;
  /** The download of weights that is in progress; null or absent if there is none. */
  download?: Download | null;
  unhealthySinceMs: number | null;
  /** null before the first reading of the progress; see wedge.ts. */
  silence: Silence | null;
  /** True from the request for a canary until its report is recorded. */
  canaryRuns: boolean;
  /** Set while the replica generates nothing and is out of routing. */
  wedged: Wedge | null;
  /** Why aborts by id cannot be relied on, as the check found; null or absent if there is no such reason. */
  abortFault?: string | null;
  /** Start of the time in which no place was found for the replica while nothing was ending that could leave one. */
  noRoomSinceMs?: number | null;
}

/** The progress of a ready replica, as far as it is known. */
export interface Silence {
  readonly progress: string;
  /** Time with requests and without progress. */
  readonly forMs: number;
  /** When `forMs` was computed. */
  readonly atMs: number;
}

export interface Wedge {
  /** Earliest time of the next canary of an external engine. */
  readonly canaryAtMs: number;
}

/** Devices reserved for the next replica of an engine while they become free. */
export interface Claim {
  readonly placement: Placement;
  readonly sinceMs: number;
  /** When the last replica on these devices ended; null while one is there. */
  readonly freeSinceMs: number | null;
  /** Earliest time of the next GPU probe. */
  readonly probeAtMs: number;
  readonly tries: number;
}

export interface Failure {
  readonly cause: FailureCause;
  /** Earliest time of the next try. Infinity: only after a command or a changed file. */
  readonly retryAtMs: number;
}

/** The phases of a start, in monotonic milliseconds. */
export type StartRecord = StartTimeline;

export interface EngineState {
  readonly id: string;
  /** Spec of the file. */
  spec: EngineSpec;
  /** Bounds of the file and its schedule at the time of the plan. */
  bounds: ReplicaBounds;
  /** True if no file has the engine any more. */
  removed: boolean;
  /** The newest spec that passed its checks, kept by the store. Started while a newer spec is rejected. */
  lastGood: EngineSpec | null;
  held: boolean;
  /** True if an operator requested a start that has not succeeded yet. */
  startRequested: boolean;
  /** True if the engine was ready and ended unexpectedly. It is restarted even if no request waits. */
  recovering: boolean;
  /** Number of replicas that the engine should have. */
  target: number;
  /** Consecutive crashes and failed starts. */
  crashes: number;
  failure: Failure | null;
  failedStarts: number;
  /** Counts replicas that were found wedged. */
  wedges: number;
  /** Why a wanted start cannot begin yet. */
  blocked: FailureCause | null;
  claim: Claim | null;
  /** Occupants, by their `runs`, beside all of which the engine found too little memory; empty: none. */
  neighbours: ReadonlySet<string>;
  /** True if the engine found too little memory with no other engine there. Others are not stopped for it. */
  failedAlone: boolean;
  /** No start before this time: a process that just ended may still keep memory, or the last request was called off. */
  pausedUntilMs: number;
  /** Newest command that was carried out; null if none. */
  lastCommand: string | null;
  /** Start of the time in which requests wait and no replica serves them. */
  waitingSinceMs: number | null;
  /** Durations of the last starts, newest last. */
  startTimesMs: readonly number[];
  /** The newest start; null before the first. */
  lastStart: StartRecord | null;
  rollout: PublishedEngine['rollout'];
  replicas: ReplicaState[];
  phase: PublishedEngine['phase'];
  sinceMs: number;
  scale: ScaleState;
}

export interface ScaleState {
  readonly highSinceMs: number | null;
  readonly lowSinceMs: number | null;
  /** Requests that a replica ran while others waited inside it; null before this was observed. */
  readonly capacity: number | null;
}

export const noScale: ScaleState = { highSinceMs: null, lowSinceMs: null, capacity: null };

/** Bounds of an engine that no plan has seen. */
const noBounds: ReplicaBounds = { min: 0, max: 0, schedule: null };

export function newEngine(spec: EngineSpec, nowMs: number): EngineState {
  return {
    id: spec.engineId,
    spec,
    bounds: noBounds,
    removed: false,
    lastGood: null,
    held: false,
    startRequested: false,
    recovering: false,
    target: 0,
    crashes: 0,
    failure: null,
    failedStarts: 0,
    wedges: 0,
    blocked: null,
    claim: null,
    neighbours: new Set(),
    failedAlone: false,
    pausedUntilMs: -Infinity,
    lastCommand: null,
    waitingSinceMs: null,
    startTimesMs: [],
    lastStart: null,
    rollout: null,
    replicas: [],
    phase: 'stopped',
    sinceMs: nowMs,
    scale: noScale,
  };
}

const alivePhases: ReadonlySet<ReplicaPhase> = new Set(['creating', 'starting', 'checking', 'ready', 'waking']);
const arrivingPhases: ReadonlySet<ReplicaPhase> = new Set(['creating', 'starting', 'checking', 'waking']);

/** True if the replica serves or is about to. */
export function isAlive({ phase }: ReplicaState): boolean {
  return alivePhases.has(phase);
}

export function isArriving({ phase }: ReplicaState): boolean {
  return arrivingPhases.has(phase);
}

const takenBack: ReadonlySet<DrainReason> = new Set(['idle', 'scale', 'sleep']);

/** True if the replica ends permanently. Its place counts as free. */
export function isLeaving({ phase, drain }: ReplicaState): boolean {
  return phase === 'stopping' || (phase === 'draining' && drain !== null && !takenBack.has(drain.reason));
}

/** True if the current spec failed its checks. Running replicas stay. */
export function isRefused({ rollout, spec }: EngineState): boolean {
  return rollout !== null && rollout.state === 'refused' && rollout.specHash === spec.hash;
}

/** True if the replica does not run the spec of its file and must be replaced by one that does. */
export function isOutdated(engine: EngineState, replica: ReplicaState): boolean {
  return (replica.stale || replica.specHash !== engine.spec.hash) && !isRefused(engine);
}

/** True if the file has changed since a spec passed the checks, so that there is a spec to fall back to. */
export function hasFallback({ lastGood, spec }: EngineState): boolean {
  return lastGood !== null && lastGood.hash !== spec.hash;
}

/** Returns the spec that a replica was started from if it is known, otherwise the spec of the file. */
export function specOf({ lastGood, spec }: EngineState, specHash: string): EngineSpec {
  return specHash !== spec.hash && lastGood?.hash === specHash ? lastGood : spec;
}

/** Returns the spec from which the next replica is started. */
export function specToStart(engine: EngineState): EngineSpec {
  const { lastGood, spec } = engine;
  return isRefused(engine) && lastGood !== null ? { ...lastGood } : spec;
}

export function enter(replica: ReplicaState, phase: ReplicaPhase, nowMs: number): void {
  replica.phase = phase;
  replica.sinceMs = nowMs;
  replica.readyVersion = null;
}
