import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import { act, type Draft, driverType, due, isHostUnreachable, job, leasesOn, noteEvent, settings } from './draft.ts';
import { noteFailure } from './failure.ts';
import { type Drain, type DrainReason, type EngineState, enter, isLeaving, type ReplicaState } from './state.ts';
import { watchStart } from './stall.ts';
import { watchExternal, watchProgress } from './wedge.ts';

/** Number of start times kept: enough for a median that soon follows a changed file. */
const startTimesMax = 8;

/** Moves each replica to its next phase, as far as the facts allow. */
export function advanceReplicas(draft: Draft, engine: EngineState): void {
  if (driverType(engine) === 'external') {
    watchExternal(draft, engine);
    return;
  }
  for (const replica of engine.replicas) advance(draft, engine, replica);
}

function advance(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  switch (replica.phase) {
    case 'creating':
      // A replica has no deadline until its start request has ended.
      if (replica.observed) stalledLateOrDue(draft, engine, replica);
      break;
    case 'starting':
      advanceStarting(draft, engine, replica);
      break;
    case 'checking':
    case 'waking':
      advanceCheck(draft, engine, replica);
      break;
    case 'ready':
      watchHealth(draft, engine, replica);
      break;
    case 'draining':
      advanceDrain(draft, engine, replica);
      break;
    case 'stopping':
      advanceStop(draft, engine, replica);
      break;
    case 'asleep':
    case 'lost':
      break;
  }
}

function advanceStarting(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const { health, nowMs } = draft.facts;
  if (health.get(replica.id) === true) {
    enter(replica, 'checking', nowMs);
    act(draft, 'check', engine, replica.id);
    due(draft, replica.deadlineMs);
  } else stalledLateOrDue(draft, engine, replica);
}

/** Ends a start that makes no progress. It is repeated, and waiting requests keep waiting. */
function stalledLateOrDue(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const cause = watchStart(draft, engine, replica);
  if (cause === null) {
    lateOrDue(draft, engine, replica);
    return;
  }
  noteEvent(draft, engine, 'a start makes no progress; the gateway ends and repeats it', {
    replicaId: replica.id,
    cause,
  });
  stopNow(draft, engine, replica);
  engine.failure = { cause, retryAtMs: draft.facts.nowMs + draft.policy.backoffFirstMs };
}

function advanceCheck(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const type = replica.phase === 'waking' ? 'wake' : 'check';
  const report = job(draft, type, replica.id);
  if (report === undefined) act(draft, type, engine, replica.id);
  if (report?.state !== 'done') lateOrDue(draft, engine, replica);
  else if (report.cause === null) {
    // A wake-up does not repeat the check of aborts.
    if (type === 'check') replica.abortFault = report.abortFault ?? null;
    becomeReady(draft, engine, replica);
  } else fail(draft, engine, replica, report.cause);
}

function lateOrDue(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  if (draft.facts.nowMs < replica.deadlineMs) due(draft, replica.deadlineMs);
  else fail(draft, engine, replica, failureCause('timeout'));
}

/** Stops a replica that runs but did not become ready. */
function fail(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  noteEvent(draft, engine, 'a replica did not become ready', { replicaId: replica.id, cause });
  stopNow(draft, engine, replica);
  noteFailure(draft, engine, replica, cause);
}

function becomeReady(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const { nowMs } = draft.facts;
  const isFirst = replica.readyAtMs === null;
  enter(replica, 'ready', nowMs);
  replica.readyAtMs ??= nowMs;
  replica.unhealthySinceMs = null;
  replica.silence = null;
  engine.failure = null;
  engine.blocked = null;
  engine.recovering = false;
  engine.startRequested = false;
  engine.failedAlone = false;
  if (replica.specHash === engine.spec.hash) engine.lastGood = engine.spec;
  if (!isFirst || replica.startRequestedAtMs === null) return;
  engine.startTimesMs = [...engine.startTimesMs, nowMs - replica.startRequestedAtMs].slice(-startTimesMax);
}

function watchHealth(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const { nowMs, health } = draft.facts;
  const isUnreachable = isHostUnreachable(draft, engine, replica);
  if (health.get(replica.id) !== false) {
    replica.unhealthySinceMs = null;
    const wedge = watchProgress(draft, engine, replica);
    if (wedge !== null) replace(draft, engine, replica, wedge);
    return;
  }
  replica.unhealthySinceMs ??= nowMs;
  const overMs = replica.unhealthySinceMs + draft.policy.unreachableMs;
  if (nowMs < overMs) {
    due(draft, overMs);
    return;
  }
  const cause = failureCause(isUnreachable ? 'host_unreachable' : 'unreachable');
  noteEvent(draft, engine, 'a replica stopped answering', { replicaId: replica.id, cause });
  if (isUnreachable) enter(replica, 'lost', nowMs);
  else stopNow(draft, engine, replica);
  noteFailure(draft, engine, replica, cause);
}

/** Stops a replica that answers its probes and generates nothing. Another one is started in its place. */
function replace(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  noteEvent(draft, engine, 'a replica generates nothing although it answers its probes; restarting it', {
    replicaId: replica.id,
    cause,
  });
  replica.wedged = { canaryAtMs: Infinity };
  engine.wedges += 1;
  stopNow(draft, engine, replica);
  noteFailure(draft, engine, replica, cause);
}

/**
 * Stops a replica, or puts it to sleep, once all gateways know of its drain and have no request there, or at the
 * drain's deadline.
 */
function advanceDrain(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const { drain } = replica;
  const { nowMs } = draft.facts;
  if (drain === null || (!isDrained(draft, engine, replica, drain) && nowMs < drain.deadlineMs)) {
    due(draft, drain?.deadlineMs ?? nowMs);
    return;
  }
  if (drain.reason !== 'sleep') {
    stopNow(draft, engine, replica);
    return;
  }
  const report = job(draft, 'sleep', replica.id);
  if (report === undefined) act(draft, 'sleep', engine, replica.id);
  if (report?.state !== 'done') return;
  if (report.cause === null) enter(replica, 'asleep', nowMs);
  else {
    noteEvent(draft, engine, 'an engine could not be put to sleep; stopping it', {
      replicaId: replica.id,
      cause: report.cause,
    });
    stopNow(draft, engine, replica);
  }
}

function isDrained(draft: Draft, engine: EngineState, replica: ReplicaState, { version }: Drain): boolean {
  if (version === null) return false;
  if (draft.facts.demands.some(({ seenVersion }) => seenVersion < version)) return false;
  return leasesOn(draft, engine, replica) === 0;
}

/** Requests the stop again until the driver reports the replica as stopping. */
function advanceStop(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  const found = draft.facts.observed.get(replica.id);
  const isUnderWay = found !== undefined && found.state === 'stopping';
  if (!isUnderWay && job(draft, 'start', replica.id)?.state !== 'pending') act(draft, 'stop', engine, replica.id);
}

export function stopNow(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  enter(replica, 'stopping', draft.facts.nowMs);
  advanceStop(draft, engine, replica);
}

/** Takes a replica out of routing. The replica is stopped, or put to sleep, when its requests have ended. */
export function drain(draft: Draft, engine: EngineState, replica: ReplicaState, reason: DrainReason): void {
  const { nowMs } = draft.facts;
  if (replica.phase !== 'ready') {
    stopNow(draft, engine, replica);
    return;
  }
  const deadlineMs = nowMs + settings(engine).drainMs;
  enter(replica, 'draining', nowMs);
  replica.drain = { reason, deadlineMs, version: null };
  noteEvent(draft, engine, `draining a replica: ${reason}`, { replicaId: replica.id });
  due(draft, deadlineMs);
}

/** @returns true if the replica serves again */
export function undrain(draft: Draft, replica: ReplicaState): boolean {
  if (replica.phase !== 'draining' || isLeaving(replica)) return false;
  // The replica may already be falling asleep.
  if (job(draft, 'sleep', replica.id) !== undefined) return false;
  enter(replica, 'ready', draft.facts.nowMs);
  replica.drain = null;
  return true;
}
