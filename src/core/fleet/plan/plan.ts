import type { EngineSpec } from '#core/fleet/drivers/drivers.ts';
import type { FleetPolicy } from '#core/fleet/policy.ts';
import type { PublishedEngine } from '#core/fleet/store/store.ts';
import { type Draft, draftOf, driverType, type LeaderFacts, noteEvent, type Plan } from './draft.ts';
import { foldObservation } from './observe.ts';
import { placeStarts } from './starts.ts';
import { advanceReplicas } from './replica.ts';
import { reduceAndRenew } from './rollout.ts';
import { makeRoomElsewhere } from './eviction.ts';
import { setTarget } from './scale.ts';
import { type EngineState, isAlive, isArriving, isRefused, type LeaderState, newEngine } from './state.ts';

export { driverType, jobKey, type JobReport, type LeaderAction, type LeaderEvent, type LeaderFacts } from './draft.ts';
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
 * What the leader does next: from what it kept, what is known now and the policy, to what it keeps then and what is to
 * be done. Called with the same facts again it requests nothing twice: whatever was requested stands in the state.
 */
export function plan(state: LeaderState, facts: LeaderFacts, policy: FleetPolicy): Plan {
  const draft = draftOf(state, facts, policy);
  syncSpecs(draft);
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
  for (const engine of draft.engines) notePhase(engine, facts.nowMs);
  // What is left of a removed one is still to be tidied away.
  const isThere = new Set([...facts.observed.values()].map(({ replica }) => replica.engineId));
  const engines = draft.engines.filter(
    ({ id, removed, replicas }) => !removed || replicas.length > 0 || isThere.has(id),
  );
  const { actions, events, dueAtMs, gpus, ends } = draft;
  return { state: { engines, gpus, ends }, actions, events, dueAtMs };
}

/** Takes over what the files say now. */
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
  // What the hash leaves out, hosts and times, counts as the file has it now.
  if (engine.lastGood?.hash === spec.hash) engine.lastGood = spec;
}

/** Failures of before count no more: something was changed since. */
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
    noteEvent(draft, engine, `an operator's command is carried out: ${kind}`);
    forgive(engine);
    engine.held = kind === 'stop';
    engine.recovering = false;
    if (kind === 'stop') engine.startRequested = false;
    if (kind === 'start' || kind === 'restart') engine.startRequested = true;
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
  if (replicas.some(({ phase }) => phase === 'ready')) return 'ready';
  if (replicas.some(isArriving) || engine.claim !== null || engine.recovering) return 'starting';
  if (engine.failure !== null) return 'failed';
  if (replicas.some(({ phase }) => phase === 'draining' || phase === 'stopping')) return 'draining';
  return engine.blocked === null ? 'stopped' : 'starting';
}
