import { type Draft, due, endsWithGateway, isOff, leasesOn, type Need, needOf, settings } from './draft.ts';
import { type EngineState, isAlive, isArriving, noScale, type ReplicaState } from './state.ts';

/** Share of its replicas' capacity from which an engine counts as full. */
const fullShare = 0.8;
/** Share of the capacity of one replica fewer below which one replica is too many. */
const spareShare = 0.5;

/** Sets the number of replicas from need, idle time and load, between the bounds of this time. */
export function setTarget(draft: Draft, engine: EngineState): void {
  const need = needOf(draft, engine);
  const alive = engine.replicas.filter(isAlive);
  const serves = alive.some(({ phase }) => phase === 'ready');
  engine.waitingSinceMs = need.waiting > 0 && !serves ? (engine.waitingSinceMs ?? draft.facts.nowMs) : null;
  if (mustEnd(draft, engine)) {
    engine.target = 0;
    engine.recovering = false;
  } else if (alive.length === 0) targetFromZero(engine, need);
  else if (!alive.some(isArriving) && isIdle(draft, engine, need)) {
    engine.target = settings(engine).min;
    engine.scale = noScale;
  } else scale(draft, engine, alive);
}

function mustEnd(draft: Draft, engine: EngineState): boolean {
  return engine.held || isOff(engine) || engine.removed || endsWithGateway(draft, engine);
}

function targetFromZero(engine: EngineState, need: Need): void {
  const { min, idleMs } = settings(engine);
  // By now, clients that lost requests when the engine ended would have retried.
  if (engine.recovering && need.idleMs >= idleMs) engine.recovering = false;
  // The old replica left to make room for the new one: the engine's requests say nothing during that time.
  const isRenewed = engine.rollout?.state === 'checking';
  const isWanted = need.waiting > 0 || engine.startRequested || engine.recovering || isRenewed;
  engine.target = Math.max(min, isWanted ? 1 : 0);
  engine.scale = noScale;
  if (engine.failure === null && engine.target === 0) engine.crashes = 0;
}

function isIdle(draft: Draft, engine: EngineState, need: Need): boolean {
  const { nowMs } = draft.facts;
  const { idleMs, min } = settings(engine);
  const ready = engine.replicas.filter(({ phase }) => phase === 'ready');
  // Counted from the newest replica's start at the earliest: all waiting clients may have left.
  const newestMs = Math.max(...ready.map(({ sinceMs }) => sinceMs));
  const forMs = Math.min(need.idleMs, nowMs - newestMs);
  if (forMs < idleMs && need.waiting + need.leases === 0 && ready.length > min) due(draft, nowMs + idleMs - forMs);
  return forMs >= idleMs;
}

function scale(draft: Draft, engine: EngineState, alive: readonly ReplicaState[]): void {
  const { min, max, upMinMs } = settings(engine);
  const { nowMs } = draft.facts;
  const { scaleUpAfterMs, scaleDownAfterMs } = draft.policy;
  engine.target = Math.min(Math.max(engine.target, min, 1), max);
  const ready = alive.filter(({ phase }) => phase === 'ready');
  // A replica is starting, or max allows no choice: the load teaches nothing now.
  if (max <= 1 || ready.length === 0 || ready.length < engine.target) {
    engine.scale = { ...engine.scale, highSinceMs: null, lowSinceMs: null };
    return;
  }
  learnLoad(draft, engine, ready);
  const { highSinceMs, lowSinceMs } = engine.scale;
  const upMs = Math.max(...ready.map(({ readyAtMs }) => readyAtMs ?? nowMs)) + upMinMs;
  if (highSinceMs !== null && engine.target < max) step(draft, engine, highSinceMs + scaleUpAfterMs, 1);
  else if (lowSinceMs !== null && engine.target > Math.max(1, min)) {
    step(draft, engine, Math.max(lowSinceMs + scaleDownAfterMs, upMs), -1);
  }
}

/** Records since when the load has been too high, or too low. */
function learnLoad(draft: Draft, engine: EngineState, ready: readonly ReplicaState[]): void {
  const { nowMs } = draft.facts;
  const load = loadOf(draft, engine, ready);
  const capacity = load.waiting > 0 ? Math.max(1, load.running / ready.length) : engine.scale.capacity;
  const each = engine.spec.definition.concurrencyMax ?? capacity;
  const isHigh = load.waiting > 0 || (each !== null && load.running >= fullShare * each * ready.length);
  const isLow = load.waiting === 0 && load.running <= spareShare * (each ?? 0) * (ready.length - 1);
  const { highSinceMs, lowSinceMs } = engine.scale;
  engine.scale = {
    highSinceMs: isHigh ? (highSinceMs ?? nowMs) : null,
    lowSinceMs: isLow ? (lowSinceMs ?? nowMs) : null,
    capacity,
  };
}

function step(draft: Draft, engine: EngineState, atMs: number, by: 1 | -1): void {
  if (draft.facts.nowMs < atMs) {
    due(draft, atMs);
    return;
  }
  engine.target += by;
  engine.scale = { ...engine.scale, highSinceMs: null, lowSinceMs: null };
}

/** Sums the load of all replicas: as each engine reports it, or the leases of all gateways if it reports none. */
function loadOf(draft: Draft, engine: EngineState, ready: readonly ReplicaState[]) {
  const sum = { running: 0, waiting: 0 };
  for (const replica of ready) {
    const load = draft.facts.loads.get(replica.id);
    if (typeof load === 'object') {
      sum.running += load.running;
      sum.waiting += load.waiting;
    } else sum.running += leasesOn(draft, engine, replica);
  }
  return sum;
}
