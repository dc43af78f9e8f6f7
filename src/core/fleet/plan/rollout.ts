import { act, type Draft, driverType, endsWithGateway, isOff, leasesOn, noteEvent, settings } from './draft.ts';
import { drain, stopNow, undrain } from './replica.ts';
import {
  type DrainReason,
  type EngineState,
  enter,
  isAlive,
  isArriving,
  isOutdated,
  type ReplicaState,
} from './state.ts';

/**
 * Moves the present replicas toward the target: drains surplus ones, drains outdated ones once a new one serves in
 * their place, and brings back draining or sleeping ones. `placeStarts` starts new replicas.
 */
export function reduceAndRenew(draft: Draft, engine: EngineState): void {
  if (driverType(engine) === 'external') return;
  if (engine.target === 0) {
    takeOutAll(draft, engine);
    return;
  }
  renew(draft, engine);
  const surplus = engine.replicas.filter(isAlive).length - engine.target;
  if (engine.rollout?.state === 'checking') return;
  if (surplus > 0) takeOut(draft, engine, engine.replicas.filter(isAlive), { count: surplus, reason: 'scale' });
  else if (surplus < 0) bringBack(draft, engine, -surplus);
}

function takeOutAll(draft: Draft, engine: EngineState): void {
  const reason = reasonToEnd(draft, engine);
  for (const replica of engine.replicas) takeOutOne(draft, engine, replica, reason);
  if (engine.rollout?.state === 'checking') engine.rollout = null;
  engine.claim = null;
  engine.blocked = null;
}

function reasonToEnd(draft: Draft, engine: EngineState): DrainReason {
  if (endsWithGateway(draft, engine)) return 'closing';
  if (engine.held) return 'held';
  if (isOff(engine)) return 'off';
  return engine.removed ? 'removed' : 'idle';
}

function takeOutOne(draft: Draft, engine: EngineState, replica: ReplicaState, reason: DrainReason): void {
  const isForGood = reason !== 'idle';
  const maySleep = !isForGood && !isOutdated(engine, replica);
  if (isAlive(replica)) {
    drain(draft, engine, replica, maySleep && settings(engine).sleepLevel > 0 ? 'sleep' : reason);
  } else if (replica.phase === 'asleep') {
    if (!maySleep) stopNow(draft, engine, replica);
  } else if (replica.drain?.reason === 'sleep' && isForGood) replica.drain = { ...replica.drain, reason };
}

/** Replaces outdated replicas one for one, each after a new replica serves. */
function renew(draft: Draft, engine: EngineState): void {
  for (const replica of engine.replicas) {
    const isIdleOld = isOutdated(engine, replica) && (isArriving(replica) || replica.phase === 'asleep');
    if (isIdleOld) stopNow(draft, engine, replica);
  }
  const old = engine.replicas.filter((replica) => isOutdated(engine, replica) && replica.phase === 'ready');
  if (old.length === 0) {
    const isOver = engine.replicas.some((replica) => replica.phase === 'ready' && !isOutdated(engine, replica));
    if (engine.rollout?.state === 'checking' && isOver) {
      noteEvent(draft, engine, 'the new version of an engine has replaced the old one');
      engine.rollout = null;
    }
    return;
  }
  if (engine.rollout?.state !== 'checking') {
    engine.rollout = {
      specHash: engine.spec.hash,
      state: 'checking',
      text: 'The new version is starting and being checked.',
    };
  }
  const isNew = (replica: ReplicaState): boolean => replica.phase === 'ready' && !isOutdated(engine, replica);
  const surplus = old.length + engine.replicas.filter(isNew).length - engine.target;
  const hasProof = engine.replicas.some(isNew);
  if (hasProof && surplus > 0) takeOut(draft, engine, old, { count: surplus, reason: 'rollout' });
}

interface Cut {
  readonly count: number;
  readonly reason: DrainReason;
}

/** Drains replicas that serve no requests yet first, then those with the fewest requests. */
export function takeOut(
  draft: Draft,
  engine: EngineState,
  among: readonly ReplicaState[],
  { count, reason }: Cut,
): void {
  const cost = (replica: ReplicaState): number => (isArriving(replica) ? -1 : leasesOn(draft, engine, replica));
  const cheapestFirst = among.toSorted((a, b) => cost(a) - cost(b));
  for (const replica of cheapestFirst.slice(0, count)) drain(draft, engine, replica, reason);
}

function bringBack(draft: Draft, engine: EngineState, count: number): void {
  let missing = count;
  for (const replica of engine.replicas) {
    if (missing > 0 && !isOutdated(engine, replica) && undrain(draft, replica)) missing -= 1;
  }
  const retryAtMs = engine.failure?.retryAtMs ?? 0;
  if (draft.facts.nowMs < retryAtMs) return;
  for (const replica of engine.replicas) {
    if (missing <= 0 || replica.phase !== 'asleep') continue;
    enter(replica, 'waking', draft.facts.nowMs);
    replica.deadlineMs = draft.facts.nowMs + settings(engine).startTimeoutMs;
    act(draft, 'wake', engine, replica.id);
    missing -= 1;
  }
}
