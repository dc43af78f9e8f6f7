import type { EngineSpec, ObservedReplica } from '#core/fleet/drivers/drivers.ts';
import { type EngineState, isAlive, type LeaderState, newEngine, type ReplicaState } from '#core/fleet/plan/plan.ts';
import { settingsOf } from '#core/fleet/policy.ts';
import type { Published, PublishedEngine, PublishedReplica, StartTimeline } from '#core/fleet/store/store.ts';

/**
 * State that a new leader gets from the last one: the published state, which the first reconciliation makes equal to
 * what runs.
 */
export interface Inheritance {
  readonly published: Published | null;
  readonly specs: ReadonlyMap<string, EngineSpec>;
  /** Specs that passed their checks last, by engine id. */
  readonly good: ReadonlyMap<string, EngineSpec>;
  readonly observed: ReadonlyMap<string, ObservedReplica>;
  /** Monotonic milliseconds. */
  readonly nowMs: number;
  /** Offset to add to milliseconds since the Unix epoch to get monotonic milliseconds. */
  readonly offsetMs: number;
}

export function inherit(inheritance: Inheritance): LeaderState {
  const published = new Map(inheritance.published?.engines.map((engine) => [engine.engineId, engine]));
  const engines = [...inheritance.specs.values()].flatMap((spec) => {
    const known = published.get(spec.engineId);
    if (known !== undefined) return [engineOf(inheritance, known, spec)];
    const lastGood = goodSpecOf(inheritance, [], spec);
    return lastGood === null ? [] : [{ ...newEngine(spec, inheritance.nowMs), lastGood }];
  });
  return { engines, gpus: new Map(), ends: [] };
}

/** Returns the last good spec. A replica that serves, or did at the last publication, has passed its checks. */
function goodSpecOf({ good }: Inheritance, replicas: readonly PublishedReplica[], spec: EngineSpec): EngineSpec | null {
  // External engines are neither checked nor started.
  if (spec.definition.driver.type === 'external') return null;
  const hasServed = replicas.some((replica) => replica.specHash === spec.hash && isServing(replica));
  const kept = good.get(spec.engineId) ?? null;
  return hasServed || kept?.hash === spec.hash ? spec : kept;
}

function isServing({ state }: PublishedReplica): boolean {
  return ['ready', 'draining', 'asleep', 'waking'].includes(state);
}

function engineOf(from: Inheritance, published: PublishedEngine, spec: EngineSpec): EngineState {
  const { offsetMs, nowMs } = from;
  const isSame = published.specHash === spec.hash;
  const replicas = published.replicas.flatMap((replica) => replicaOf(from, replica, spec) ?? []);
  const { cause, retryAtMs, phase } = published;
  const retry = retryAtMs === null ? (phase === 'failed' ? Infinity : nowMs) : retryAtMs + offsetMs;
  const hadFailed = isSame && cause !== null && cause.kind !== 'no_room';
  return {
    ...newEngine(spec, nowMs),
    lastGood: goodSpecOf(from, published.replicas, spec),
    held: phase === 'held',
    failure: hadFailed ? { cause, retryAtMs: retry } : null,
    ...countsOf(published, hadFailed),
    recovering: isSame && phase === 'starting' && replicas.length === 0 && hadFailed,
    target: replicas.filter(isAlive).length,
    startTimesMs: published.startTimesMs,
    lastStart: moved(published.lastStart, offsetMs),
    lastCommand: published.lastCommand ?? null,
    rollout: isSame && published.rollout?.state === 'refused' ? published.rollout : null,
    replicas,
    phase,
    sinceMs: published.sinceMs + offsetMs,
  };
}

/** Returns the record with its times moved to another clock. */
function moved(record: StartTimeline | null | undefined, byMs: number): StartTimeline | null {
  if (!record) return null;
  return { ...record, steps: record.steps.map(({ phase, atMs }) => ({ phase, atMs: Math.round(atMs + byMs) })) };
}

/** Leaders of older versions do not publish every count. */
function countsOf({ failures = 0, failedStarts, wedges = 0 }: PublishedEngine, hadFailed: boolean) {
  return { crashes: hadFailed ? failures : 0, failedStarts, wedges };
}

function replicaOf(from: Inheritance, replica: PublishedReplica, spec: EngineSpec): ReplicaState | null {
  const { nowMs, offsetMs, observed, published } = from;
  const isObserved = observed.has(replica.id);
  const hasServed = isServing(replica);
  // A published replica that never started is no failure; one that served and has ended is a failure.
  if (!isObserved && !hasServed) return null;
  const { startTimeoutMs, drainMs } = settingsOf(spec.definition);
  // Checks run again: their reports were lost with the last leader.
  const phase = replica.state === 'checking' ? 'starting' : replica.state;
  const sinceMs = replica.sinceMs + offsetMs;
  return {
    id: replica.id,
    specHash: replica.specHash,
    placement: { host: replica.host, gpuIds: replica.gpuIds },
    phase,
    sinceMs,
    startRequestedAtMs: null,
    observed: true,
    deadlineMs: nowMs + startTimeoutMs,
    readyAtMs: hasServed ? sinceMs : null,
    readyVersion: phase === 'ready' ? (published?.version ?? null) : null,
    drain:
      phase === 'draining'
        ? { reason: 'scale', deadlineMs: nowMs + drainMs, version: published?.version ?? null }
        : null,
    stale: false,
    progress: replica.progress,
    unhealthySinceMs: null,
    silence: null,
    canaryRuns: false,
    wedged: null,
    abortFault: replica.abortFault ?? null,
  };
}

/** Phases of engines that do not run because they need not. */
const restingPhases: ReadonlySet<PublishedEngine['phase']> = new Set(['held', 'off', 'stopped']);

/** Returns the state in the form that is published to all gateways. */
export function publishable(state: LeaderState, offsetMs: number): PublishedEngine[] {
  return state.engines.map((engine) => ({
    engineId: engine.id,
    specHash: engine.spec.hash,
    phase: engine.phase,
    sinceMs: Math.round(engine.sinceMs - offsetMs),
    cause: restingPhases.has(engine.phase) ? null : (engine.blocked ?? engine.failure?.cause ?? null),
    retryAtMs: retryAt(engine, offsetMs),
    failures: engine.crashes,
    failedStarts: engine.failedStarts,
    wedges: engine.wedges,
    replicas: engine.replicas.map((replica) => publishedReplica(replica, offsetMs)),
    startTimesMs: engine.startTimesMs.map(Math.round),
    lastStart: moved(engine.lastStart, -offsetMs),
    rollout: engine.rollout,
    lastCommand: engine.lastCommand,
  }));
}

/**
 * Sets the version that was just published on drains and ready replicas: a gateway that has seen the version acts by
 * them.
 */
export function withVersion(state: LeaderState, version: bigint): LeaderState {
  const engines = state.engines.map((engine) => ({
    ...engine,
    replicas: engine.replicas.map((replica) => ({
      ...replica,
      drain: replica.drain?.version === null ? { ...replica.drain, version } : replica.drain,
      readyVersion: replica.phase === 'ready' ? (replica.readyVersion ?? version) : null,
    })),
  }));
  return { ...state, engines };
}

function retryAt({ failure }: EngineState, offsetMs: number): number | null {
  return failure === null || failure.retryAtMs === Infinity ? null : Math.round(failure.retryAtMs - offsetMs);
}

function publishedReplica(replica: ReplicaState, offsetMs: number): PublishedReplica {
  const { id, specHash, placement, phase, progress, download, sinceMs, wedged, abortFault = null } = replica;
  return {
    id,
    specHash,
    // An unreachable replica serves no request, and may come back.
    state: phase === 'lost' ? 'stopping' : phase,
    host: placement.host,
    gpuIds: placement.gpuIds,
    progress,
    ...(download && phase !== 'stopping' && { download }),
    sinceMs: Math.round(sinceMs - offsetMs),
    ...(wedged !== null && { wedged: true as const }),
    ...(abortFault !== null && { abortFault }),
  };
}
