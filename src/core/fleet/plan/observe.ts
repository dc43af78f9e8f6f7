import { explainExit, type FailureCause, failureCause, type ObservedReplica } from '#core/fleet/drivers/drivers.ts';
import { noteEnd } from './memory-neighbours.ts';
import { act, type Draft, driverType, isHostUnreachable, job, noteEvent, settings } from './draft.ts';
import { noteFailure } from './failure.ts';
import { enter, type EngineState, isAlive, type ReplicaState } from './state.ts';

/** Updates an engine's replicas to what the driver found, and records unexpected ends. */
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

/**
 * Mirrors an external engine: its replica exists, and gets requests unless the engine is held or removed or the gateway
 * closes.
 */
function mirror(draft: Draft, engine: EngineState): void {
  const { observed, nowMs, closing } = draft.facts;
  const wanted = !(engine.held || engine.removed || closing);
  const found = wanted ? [...observed.values()].filter(({ replica }) => replica.engineId === engine.id) : [];
  engine.replicas = found.map((one) => {
    const before = engine.replicas.find(({ id }) => id === one.replica.id);
    const begun = before ?? foundReplica(one, nowMs);
    // A new leader does not know which replicas generate nothing, and finds out again.
    const phase = begun.wedged === null ? 'ready' : begun.phase;
    return { ...begun, phase, specHash: one.specHash, readyAtMs: begun.readyAtMs ?? nowMs };
  });
}

function missing(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  if (isHostUnreachable(draft, engine, replica)) return;
  const requested = replica.observed ? undefined : job(draft, 'start', replica.id);
  if (requested?.state === 'pending') return;
  if (requested?.state === 'called_off') {
    remove(engine, replica);
    engine.pausedUntilMs = draft.facts.nowMs + draft.policy.backoffFirstMs;
    return;
  }
  // The driver could not begin the start, or the replica disappeared, maybe right after its start.
  endedUnasked(draft, engine, replica, requested?.cause ?? failureCause('vanished'));
}

function exited(draft: Draft, engine: EngineState, replica: ReplicaState, { exit }: ObservedReplica): void {
  if (exit === null || exit.stopRequested) remove(engine, replica);
  else endedUnasked(draft, engine, replica, explainExit(exit));
  noteEnd(draft, engine, replica);
}

function endedUnasked(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  remove(engine, replica);
  // A replica that was to end anyway needs no restart, and a sleeping replica serves no request.
  if (['draining', 'stopping', 'asleep', 'lost'].includes(replica.phase)) return;
  noteEvent(draft, engine, 'an engine exited unexpectedly', { replicaId: replica.id, cause });
  noteFailure(draft, engine, replica, cause);
}

function remove(engine: EngineState, replica: ReplicaState): void {
  engine.replicas = engine.replicas.filter((one) => one !== replica);
}

function present(draft: Draft, engine: EngineState, replica: ReplicaState, found: ObservedReplica): void {
  const { nowMs } = draft.facts;
  replica.observed = true;
  // A host may have been renamed in hosts.yaml, or another entry may reach the same Docker engine.
  replica.placement = found.placement;
  replica.progress = found.progress;
  replica.download = draft.facts.starts.get(replica.id)?.download ?? null;
  if (found.state === 'stopping' && replica.phase !== 'stopping') enter(replica, 'stopping', nowMs);
  if (replica.phase === 'lost' && !isHostUnreachable(draft, engine, replica)) {
    noteEvent(draft, engine, 'the host of a replica is reachable again', { replicaId: replica.id });
    begin(draft, engine, replica, found);
  } else if (replica.phase === 'creating' && found.state === 'running') begin(draft, engine, replica, found);
}

/** Adds a replica that already runs. It is checked like a new one, whoever started it. */
function adopt(draft: Draft, engine: EngineState, found: ObservedReplica): void {
  const replica = foundReplica(found, draft.facts.nowMs);
  engine.replicas.push(replica);
  if (found.state === 'stopping') return;
  begin(draft, engine, replica, found);
  engine.target = Math.max(engine.target, engine.replicas.filter(isAlive).length);
  noteEvent(draft, engine, 'adopted a replica that was already running', { replicaId: replica.id });
}

function begin(draft: Draft, engine: EngineState, replica: ReplicaState, found: ObservedReplica): void {
  const { nowMs } = draft.facts;
  const isRunning = found.state === 'running';
  enter(replica, isRunning ? 'starting' : 'creating', nowMs);
  replica.unhealthySinceMs = null;
  replica.deadlineMs = nowMs + (isRunning ? settings(engine).startTimeoutMs : draft.policy.createTimeoutMs);
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
    silence: null,
    canaryRuns: false,
    wedged: null,
  };
}
