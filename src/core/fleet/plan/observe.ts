import { explainExit, type FailureCause, failureCause, type ObservedReplica } from '#core/fleet/drivers/drivers.ts';
import { noteCrowd, noteEnd } from './crowd.ts';
import { act, type Draft, driverType, hostIsAway, job, settings, tell } from './draft.ts';
import { enter, type EngineState, hasFallback, isAlive, isOutdated, isRefused, type ReplicaState } from './state.ts';

/** Makes an engine's replicas what the driver found, and notes how those ended that nobody had asked to. */
export function foldObservation(draft: Draft, engine: EngineState): void {
  const { observed } = draft.facts;
  if (driverType(engine) === 'external') {
    mirror(draft, engine);
    return;
  }
  const known = new Set(engine.replicas.map(({ id }) => id));
  for (const replica of engine.replicas) {
    const found = observed.get(replica.id);
    if (found === undefined) missing(draft, engine, replica);
    else if (found.state === 'exited') exited(draft, engine, replica, found);
    else present(draft, engine, replica, found);
  }
  for (const found of observed.values()) {
    if (found.replica.engineId !== engine.id) continue;
    if (found.state === 'exited') act(draft, 'forget', engine, found.replica.id);
    else if (!known.has(found.replica.id)) adopt(draft, engine, found);
  }
}

/** Somebody else runs it: it is there, and routed to unless that is not wanted. */
function mirror(draft: Draft, engine: EngineState): void {
  const { observed, nowMs, closing } = draft.facts;
  const wanted = !(engine.held || engine.removed || closing);
  const found = wanted ? [...observed.values()].filter(({ replica }) => replica.engineId === engine.id) : [];
  engine.replicas = found.map((one) => {
    const before = engine.replicas.find(({ id }) => id === one.replica.id);
    const begun = before ?? { ...foundReplica(one, nowMs), phase: 'ready' as const, readyAtMs: nowMs };
    return { ...begun, specHash: one.specHash };
  });
}

function missing(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  if (hostIsAway(draft, engine, replica)) return;
  if (!replica.observed) {
    const ordered = job(draft, 'start', replica.id);
    if (ordered?.state === 'pending') return;
    // Its failure, where the driver could not even begin, or its disappearance right after.
    const cause = ordered?.cause ?? failureCause('vanished');
    endedUnasked(draft, engine, replica, cause);
    return;
  }
  endedUnasked(draft, engine, replica, failureCause('vanished'));
}

function exited(draft: Draft, engine: EngineState, replica: ReplicaState, { exit }: ObservedReplica): void {
  if (exit === null || exit.stopRequested) remove(engine, replica);
  else endedUnasked(draft, engine, replica, explainExit(exit));
  noteEnd(draft, engine, replica);
}

function endedUnasked(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  remove(engine, replica);
  // Of one that was to end anyway nobody expects more, and one that is asleep serves nobody.
  if (['draining', 'stopping', 'asleep', 'lost'].includes(replica.phase)) return;
  tell(draft, engine, 'an engine ended unasked', { replicaId: replica.id, cause });
  noteFailure(draft, engine, replica, cause);
}

function remove(engine: EngineState, replica: ReplicaState): void {
  engine.replicas = engine.replicas.filter((one) => one !== replica);
}

function present(draft: Draft, engine: EngineState, replica: ReplicaState, found: ObservedReplica): void {
  const { nowMs } = draft.facts;
  replica.observed = true;
  // An entry of hosts.yaml may have got another name, or be another one's that reaches the same engine.
  replica.placement = found.placement;
  replica.progress = found.progress;
  if (found.state === 'stopping' && replica.phase !== 'stopping') enter(replica, 'stopping', nowMs);
  if (replica.phase === 'lost' && !hostIsAway(draft, engine, replica)) {
    tell(draft, engine, 'a host can be reached again', { replicaId: replica.id });
    begin(draft, engine, replica, found);
  } else if (replica.phase === 'creating' && found.state === 'running') begin(draft, engine, replica, found);
}

/** Checked like a new one, whoever started it. */
function adopt(draft: Draft, engine: EngineState, found: ObservedReplica): void {
  const replica = foundReplica(found, draft.facts.nowMs);
  engine.replicas.push(replica);
  if (found.state === 'stopping') return;
  begin(draft, engine, replica, found);
  engine.target = Math.max(engine.target, engine.replicas.filter(isAlive).length);
  tell(draft, engine, 'an engine that runs already is taken over', { replicaId: replica.id });
}

function begin(draft: Draft, engine: EngineState, replica: ReplicaState, found: ObservedReplica): void {
  const { nowMs } = draft.facts;
  const isThere = found.state === 'running';
  enter(replica, isThere ? 'starting' : 'creating', nowMs);
  replica.unhealthySinceMs = null;
  replica.deadlineMs = nowMs + (isThere ? settings(engine).startTimeoutMs : draft.policy.createTimeoutMs);
}

function foundReplica(found: ObservedReplica, nowMs: number): ReplicaState {
  return {
    id: found.replica.id,
    specHash: found.specHash,
    placement: found.placement,
    phase: found.state === 'stopping' ? 'stopping' : 'starting',
    sinceMs: nowMs,
    startRequestedAtMs: null,
    observed: true,
    deadlineMs: Infinity,
    readyAtMs: null,
    readyVersion: null,
    drain: null,
    stale: false,
    progress: found.progress,
    unhealthySinceMs: null,
  };
}

/**
 * What a replica's end, failed check or lateness means for its engine. Too little memory beside others is no failure: it
 * is tried again when there is room. A start that fails answers all who wait; one
 * that was ready is started again by itself; a new spec that fails is refused where an old one serves or is known.
 */
export function noteFailure(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  if (noteCrowd(draft, engine, replica, cause)) return;
  if (isTrial(engine, replica)) {
    refuseRollout(draft, engine, cause);
    return;
  }
  const { nowMs } = draft.facts;
  const wasReady = replica.readyAtMs !== null;
  const stable = replica.readyAtMs !== null && nowMs - replica.readyAtMs >= draft.policy.stableMs;
  engine.crashes = stable ? 1 : engine.crashes + 1;
  if (wasReady) engine.recovering = true;
  failStart(draft, engine, cause, wasReady);
}

/**
 * @param quiet who waits goes on waiting: the engine was ready and comes back by itself, unless it did so too often
 */
export function failStart(draft: Draft, engine: EngineState, cause: FailureCause, quiet: boolean): void {
  const { nowMs } = draft.facts;
  const { crashesMax, failedMs, backoffFirstMs, backoffMaxMs } = draft.policy;
  const givenUp = engine.crashes >= crashesMax;
  const backoffMs = Math.min(backoffFirstMs * 2 ** Math.max(0, engine.crashes - 1), backoffMaxMs);
  engine.failure = { cause, retryAtMs: nowMs + (givenUp ? failedMs : backoffMs) };
  engine.claim = null;
  engine.blocked = null;
  if (givenUp) engine.recovering = false;
  if (!engine.recovering) engine.startRequested = false;
  if (quiet && !givenUp) return;
  engine.failedStarts += 1;
  tell(draft, engine, givenUp ? 'an engine failed too often' : 'an engine could not be started', { cause });
}

/** The first of a new spec, or of a restart, before any of its kind has served. */
function isTrial(engine: EngineState, replica: ReplicaState): boolean {
  if (replica.readyAtMs !== null || isOutdated(engine, replica)) return false;
  // With nothing left that serves, there is no rollout to see: the file was changed while the engine was stopped, or
  // the leader that had begun it is gone.
  const isTried = engine.rollout?.state === 'checking' || (hasFallback(engine) && !isRefused(engine));
  if (!isTried) return false;
  return !engine.replicas.some((one) => one.phase === 'ready' && !isOutdated(engine, one));
}

/** What runs stays; where nothing does, what passed its checks before is started. */
export function refuseRollout(draft: Draft, engine: EngineState, cause: FailureCause): void {
  const words = cause.detail === undefined ? cause.publicText : `${cause.publicText} ${cause.detail}`;
  engine.rollout = { specHash: engine.spec.hash, state: 'refused', text: words };
  engine.claim = null;
  // Where there was no room beside, the last that served may be gone by now.
  if (!engine.replicas.some(({ phase }) => phase === 'ready')) engine.recovering = true;
  tell(draft, engine, 'a changed engine did not pass its checks and stays out', { cause });
}
