import type { EngineSpec, FailureCause, Placement } from '#core/fleet/drivers/drivers.ts';
import type { PublishedEngine, PublishedReplica } from '#core/fleet/store/store.ts';

/**
 * What the leader keeps of each engine and replica between two reconciliations. All times are monotonic milliseconds.
 */
export interface LeaderState {
  readonly engines: readonly EngineState[];
  /** By host and device: what its memory was used for before ours came there, and whether ours has been there. */
  readonly gpus: ReadonlyMap<string, GpuMemory>;
  /** The last processes that ended, oldest first: what they had may have been what another found too little of. */
  readonly ends: readonly End[];
}

export interface End {
  /** As `runs` of an occupant. */
  readonly runs: string;
  readonly atMs: number;
  readonly wasReady: boolean;
}

export interface GpuMemory {
  /** Bytes in use when nothing of ours was there; null when that is not known. */
  readonly baselineBytes: number | null;
  readonly touched: boolean;
}

/** `lost`: its host cannot be reached; it is believed to run on, and to keep its devices. */
export type ReplicaPhase = PublishedReplica['state'] | 'lost';

/** Why a replica is to get no more requests. The first three are taken back when it is needed after all. */
export type DrainReason = 'idle' | 'scale' | 'sleep' | 'room' | 'rollout' | 'held' | 'removed' | 'closing';

export interface Drain {
  readonly reason: DrainReason;
  /** When requests are no longer waited for. */
  readonly deadlineMs: number;
  /** The published version with which all gateways know of it; null until it is published. */
  readonly version: bigint | null;
}

export interface ReplicaState {
  readonly id: string;
  readonly specHash: string;
  /** As its start was requested, and then as it is observed. */
  placement: Placement;
  phase: ReplicaPhase;
  sinceMs: number;
  /** When this leader requested its start; null for one that was found. */
  readonly startRequestedAtMs: number | null;
  /** The driver has shown it at least once. */
  observed: boolean;
  /** When a start, check or awakening is late. */
  deadlineMs: number;
  /** When it was ready first; null before. */
  readyAtMs: number | null;
  /** The published version with which all gateways send to it; null until it is published. */
  readyVersion: bigint | null;
  drain: Drain | null;
  /** To be replaced although its spec has not changed. */
  stale: boolean;
  progress: string | null;
  unhealthySinceMs: number | null;
  /** Since when no place was found for it although nothing was ending that could have left one. */
  noRoomSinceMs?: number | null;
}

/** Devices kept for the next replica of an engine while they become free. */
export interface Claim {
  readonly placement: Placement;
  readonly sinceMs: number;
  /** When the last replica there was gone; null while one is. */
  readonly freeSinceMs: number | null;
  /** When the devices may be asked again. */
  readonly probeAtMs: number;
  readonly tries: number;
}

export interface Failure {
  readonly cause: FailureCause;
  /** Infinity: not before a command or a changed file. */
  readonly retryAtMs: number;
}

export interface EngineState {
  readonly id: string;
  /** Of the files. */
  spec: EngineSpec;
  /** No file has it any more. */
  removed: boolean;
  /** The newest spec that passed its checks, kept by the store; what is started while a newer one is refused. */
  lastGood: EngineSpec | null;
  held: boolean;
  /** An operator asked for a start that has not come about yet. */
  startRequested: boolean;
  /** It was ready and ended unasked: started again whether anybody waits or not. */
  recovering: boolean;
  /** Replicas that there should be. */
  target: number;
  /** Ends and failed starts in a row. */
  crashes: number;
  failure: Failure | null;
  failedStarts: number;
  /** Why a start that is wanted cannot begin yet. */
  blocked: FailureCause | null;
  claim: Claim | null;
  /** Occupants, by their `runs`, beside all of which it found too little memory; empty: none. */
  neighbours: ReadonlySet<string>;
  /** It found too little memory although nobody else was there: others are not to go for it. */
  failedAlone: boolean;
  /** Not started before: what has just ended may still keep memory, or the last request was called off. */
  pausedUntilMs: number;
  /** The newest command that was carried out; null: none. */
  lastCommand: string | null;
  /** Since when requests wait while nothing serves them. */
  waitingSinceMs: number | null;
  /** Newest last. */
  startTimesMs: readonly number[];
  rollout: PublishedEngine['rollout'];
  replicas: ReplicaState[];
  phase: PublishedEngine['phase'];
  sinceMs: number;
  scale: ScaleState;
}

export interface ScaleState {
  readonly highSinceMs: number | null;
  readonly lowSinceMs: number | null;
  /** Requests that a replica ran when some waited inside it; null before that was seen. */
  readonly capacity: number | null;
}

export const noScale: ScaleState = { highSinceMs: null, lowSinceMs: null, capacity: null };

export function newEngine(spec: EngineSpec, nowMs: number): EngineState {
  return {
    id: spec.engineId,
    spec,
    removed: false,
    lastGood: null,
    held: false,
    startRequested: false,
    recovering: false,
    target: 0,
    crashes: 0,
    failure: null,
    failedStarts: 0,
    blocked: null,
    claim: null,
    neighbours: new Set(),
    failedAlone: false,
    pausedUntilMs: -Infinity,
    lastCommand: null,
    waitingSinceMs: null,
    startTimesMs: [],
    rollout: null,
    replicas: [],
    phase: 'stopped',
    sinceMs: nowMs,
    scale: noScale,
  };
}

const alivePhases: ReadonlySet<ReplicaPhase> = new Set(['creating', 'starting', 'checking', 'ready', 'waking']);
const arrivingPhases: ReadonlySet<ReplicaPhase> = new Set(['creating', 'starting', 'checking', 'waking']);

/** It serves or is on its way to. */
export function isAlive({ phase }: ReplicaState): boolean {
  return alivePhases.has(phase);
}

export function isArriving({ phase }: ReplicaState): boolean {
  return arrivingPhases.has(phase);
}

const takenBack: ReadonlySet<DrainReason> = new Set(['idle', 'scale', 'sleep']);

/** It ends for good: its place is as good as free. */
export function isLeaving({ phase, drain }: ReplicaState): boolean {
  return phase === 'stopping' || (phase === 'draining' && drain !== null && !takenBack.has(drain.reason));
}

/** A newer spec of this engine failed its checks: what runs stays. */
export function isRefused({ rollout, spec }: EngineState): boolean {
  return rollout !== null && rollout.state === 'refused' && rollout.specHash === spec.hash;
}

/** It does not run what its file says, and is to be replaced by one that does. */
export function isOutdated(engine: EngineState, replica: ReplicaState): boolean {
  return (replica.stale || replica.specHash !== engine.spec.hash) && !isRefused(engine);
}

/** Its file has changed since something passed the checks: there is what to fall back to. */
export function hasFallback({ lastGood, spec }: EngineState): boolean {
  return lastGood !== null && lastGood.hash !== spec.hash;
}

/** What a replica was started from, as far as it is known; else what the file says. */
export function specOf({ lastGood, spec }: EngineState, specHash: string): EngineSpec {
  return specHash !== spec.hash && lastGood?.hash === specHash ? lastGood : spec;
}

/** What the next replica is started from. */
export function specToStart(engine: EngineState): EngineSpec {
  const { lastGood, spec } = engine;
  return isRefused(engine) && lastGood !== null ? { ...lastGood } : spec;
}

export function enter(replica: ReplicaState, phase: ReplicaPhase, nowMs: number): void {
  replica.phase = phase;
  replica.sinceMs = nowMs;
  replica.readyVersion = null;
}
