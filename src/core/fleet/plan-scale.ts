import { type EngineState, isAlive, isArriving, noScale, type ReplicaState } from './leader-state.ts';
import { type Draft, driverType, due, leasesOn, type Need, needOf, settings } from './plan-draft.ts';

/** From so much of what its replicas can run at once, an engine is thought full. */
const fullShare = 0.8;
/** Below so much of what one replica less could run, one is too many. */
const spareShare = 0.5;

/** How many replicas there should be: from need, idle time and load, between the file's bounds. */
export function setTarget(draft: Draft, engine: EngineState): void {
  const { nowMs, closing } = draft.facts;
  const { min } = settings(engine);
  const need = needOf(draft, engine);
  const alive = engine.replicas.filter(isAlive);
  const serves = alive.some(({ phase }) => phase === 'ready');
  engine.waitingSinceMs = need.waiting > 0 && !serves ? (engine.waitingSinceMs ?? nowMs) : null;
  if (engine.held || engine.removed || (closing && driverType(engine) === 'process')) {
    engine.target = 0;
    engine.recovering = false;
    return;
  }
  if (alive.length === 0) {
    // Who was cut off by its end would be back by now.
    if (engine.recovering && need.idleMs >= settings(engine).idleMs) engine.recovering = false;
    const isWanted = need.waiting > 0 || engine.startAsked || engine.recovering;
    engine.target = Math.max(min, isWanted ? 1 : 0);
    engine.scale = noScale;
    if (engine.failure === null && engine.target === 0) engine.crashes = 0;
  } else if (!alive.some(isArriving) && isIdle(draft, engine, need)) {
    engine.target = min;
    engine.scale = noScale;
  } else scale(draft, engine, alive);
}

function isIdle(draft: Draft, engine: EngineState, need: Need): boolean {
  const { nowMs } = draft.facts;
  const { idleMs, min } = settings(engine);
  const ready = engine.replicas.filter(({ phase }) => phase === 'ready');
  // Counted from its start at the earliest: all who waited for it may have left.
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
  // Another is on its way, or there is nothing to choose: nothing is learned from the load now.
  if (max <= 1 || ready.length === 0 || ready.length < engine.target) {
    engine.scale = { ...engine.scale, highSinceMs: null, lowSinceMs: null };
    return;
  }
  const load = loadOf(draft, engine, ready);
  const capacity = load.waiting > 0 ? Math.max(1, load.running / ready.length) : engine.scale.capacity;
  const { concurrencyMax } = engine.spec.definition;
  const each = concurrencyMax ?? capacity;
  const isHigh = load.waiting > 0 || (each !== null && load.running >= fullShare * each * ready.length);
  const isLow = load.waiting === 0 && load.running <= spareShare * (each ?? 0) * (ready.length - 1);
  const highSinceMs = isHigh && engine.target < max ? (engine.scale.highSinceMs ?? nowMs) : null;
  const lowSinceMs = isLow && engine.target > Math.max(1, min) ? (engine.scale.lowSinceMs ?? nowMs) : null;
  engine.scale = { highSinceMs, lowSinceMs, capacity };
  const upMs = Math.max(...ready.map(({ readyAtMs }) => readyAtMs ?? nowMs)) + upMinMs;
  if (highSinceMs !== null) step(draft, engine, highSinceMs + scaleUpAfterMs, 1);
  if (lowSinceMs !== null) step(draft, engine, Math.max(lowSinceMs + scaleDownAfterMs, upMs), -1);
}

function step(draft: Draft, engine: EngineState, atMs: number, by: 1 | -1): void {
  if (draft.facts.nowMs < atMs) {
    due(draft, atMs);
    return;
  }
  engine.target += by;
  engine.scale = { ...engine.scale, highSinceMs: null, lowSinceMs: null };
}

/** As the engines report it; the gateways' own leases where one does not. */
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
