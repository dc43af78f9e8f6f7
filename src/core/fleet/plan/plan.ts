import type { EngineSpec } from '#core/fleet/drivers/drivers.ts';
import { type FleetPolicy, replicaBoundsAt } from '#core/fleet/policy.ts';
import type { PublishedEngine } from '#core/fleet/store/store.ts';
import { type Draft, draftOf, driverType, due, isOff, type LeaderFacts, noteEvent, type Plan } from './draft.ts';
import { foldObservation } from './observe.ts';
import { placeStarts } from './starts.ts';
import { advanceReplicas } from './replica.ts';
import { reduceAndRenew } from './rollout.ts';
import { makeRoomElsewhere } from './eviction.ts';
import { setTarget } from './scale.ts';
import { noteStart } from './start-record.ts';
import { hasStalled } from './stall.ts';
import { type EngineState, isAlive, isArriving, isRefused, type LeaderState, newEngine } from './state.ts';

export {
  driverType,
  jobKey,
  type JobReport,
  type LeaderAction,
  type LeaderEvent,
  type LeaderFacts,
  type StartReading,
} from './draft.ts';
export {
  type EngineState,
  isAlive,
  type LeaderState,
  newEngine,
  type ReplicaPhase,
  type ReplicaState,
  specOf,
} from './state.ts';

/**
 * Computes the leader's next state and actions from the state before, the facts and the policy. Planning again with the
 * same facts requests nothing twice: every request is recorded in the state.
 */
export function plan(state: LeaderState, facts: LeaderFacts, policy: FleetPolicy): Plan {
  const draft = draftOf(state, facts, policy);
  syncSpecs(draft);
  applySchedules(draft);
  applyCommands(draft);
  const seen = draft.engines.filter((engine) => !facts.blind.has(driverType(engine)));
  for (const engine of seen) {
    foldObservation(draft, engine);
    advanceReplicas(draft, engine);
    setTarget(draft, engine);
    reduceAndRenew(draft, engine);
  }
  placeStarts(draft, seen);
  makeRoomElsewhere(draft, seen);
  for (const engine of draft.engines) {
    noteStart(draft, engine);
    notePhase(engine, facts.nowMs);
  }
  // A removed engine stays until nothing of it is left to clean up.
  const observedEngines = new Set([...facts.observed.values()].map(({ replica }) => replica.engineId));
  const engines = draft.engines.filter(
    ({ id, removed, replicas }) => !removed || replicas.length > 0 || observedEngines.has(id),
  );
  const { actions, events, dueAtMs, gpus, ends } = draft;
  return { state: { engines, gpus, ends }, actions, events, dueAtMs };
}

/** Applies the current specs of the files. */
function syncSpecs(draft: Draft): void {
  const { facts } = draft;
  const known = new Map(draft.engines.map((engine) => [engine.id, engine]));
  for (const spec of facts.specs.values()) {
    const engine = known.get(spec.engineId);
    if (engine === undefined) draft.engines.push(newEngine(spec, facts.nowMs));
    else takeSpec(engine, spec);
  }
  for (const engine of draft.engines) engine.removed = !facts.specs.has(engine.id);
}

function takeSpec(engine: EngineState, spec: EngineSpec): void {
  if (engine.spec.hash !== spec.hash) {
    forgive(engine);
    engine.rollout = null;
  }
  engine.spec = spec;
  // The hash does not include hosts and times; the file's current values apply.
  if (engine.lastGood?.hash === spec.hash) engine.lastGood = spec;
}

/** Sets the bounds of this time. A schedule that takes effect while this gateway leads is noted. */
function applySchedules(draft: Draft): void {
  const { nowMs, epochMs } = draft.facts;
  for (const engine of draft.engines) {
    const before = engine.bounds.schedule;
    engine.bounds = replicaBoundsAt(engine.spec.definition, epochMs);
    const { min, max, schedule } = engine.bounds;
    if (schedule === null) continue;
    if (schedule.untilMs < Infinity) due(draft, nowMs + schedule.untilMs - epochMs);
    if (before === null || before.untilMs > epochMs) continue;
    const effect = max === 0 ? 'the engine is off' : `${min} to ${max} replicas`;
    noteEvent(draft, engine, `an entry of the schedule takes effect: ${effect}`);
  }
}

/** Clears failures, because the file or a command has changed something. */
function forgive(engine: EngineState): void {
  engine.failure = null;
  engine.blocked = null;
  engine.crashes = 0;
  engine.neighbours = new Set();
  engine.failedAlone = false;
  engine.pausedUntilMs = -Infinity;
}

function applyCommands(draft: Draft): void {
  for (const { engineId, kind, id: commandId } of draft.facts.commands) {
    const engine = draft.engines.find(({ id }) => id === engineId);
    if (engine === undefined) continue;
    engine.lastCommand = commandId;
    noteEvent(draft, engine, `executing an operator command: ${kind}`);
    forgive(engine);
    // An external engine that generated nothing gets requests again.
    if (driverType(engine) === 'external') engine.replicas = [];
    engine.held = kind === 'stop';
    engine.recovering = false;
    if (kind === 'stop') engine.startRequested = false;
    if (kind === 'start' || kind === 'restart') engine.startRequested = !isOff(engine);
    if (kind === 'start') continue;
    if (isRefused(engine)) engine.rollout = null;
    if (kind === 'restart') for (const replica of engine.replicas) replica.stale = isAlive(replica);
  }
}

function notePhase(engine: EngineState, nowMs: number): void {
  const phase = phaseOf(engine);
  if (phase !== engine.phase) engine.sinceMs = nowMs;
  engine.phase = phase;
}

function phaseOf(engine: EngineState): PublishedEngine['phase'] {
  const { replicas } = engine;
  if (engine.held) return 'held';
  if (isOff(engine)) return 'off';
  if (replicas.some(({ phase }) => phase === 'ready')) return 'ready';
  if (
    replicas.some((replica) => isArriving(replica) && replica.wedged === null) ||
    engine.claim !== null ||
    engine.recovering ||
    (hasStalled(engine) && engine.target > 0)
  )
    return 'starting';
  if (engine.failure !== null) return 'failed';
  if (replicas.some(({ phase }) => phase === 'draining' || phase === 'stopping')) return 'draining';
  return engine.blocked === null ? 'stopped' : 'starting';
}
