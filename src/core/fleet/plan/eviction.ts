import { type EngineSpec, failureCause, type Placement } from '#core/fleet/drivers/drivers.ts';
import { type Draft, driverType, due, leasesOn, needOf, noteEvent, settings } from './draft.ts';
import { claimId, claimOccupant, hostsOf, plannedOccupants, stayingReplica, takesOf } from './occupants.ts';
import { type Evictable, findEviction, type Occupant, type PlaceNeed } from './placement.ts';
import { drain, stopNow } from './replica.ts';
import { type EngineState, isArriving, isOutdated, type ReplicaState } from './state.ts';

/** Chooses the replicas to stop so that another one has room. */

/**
 * Stops idle replicas, the least recently used first. If all are busy, stops replicas that have been up for their
 * minimum time and have served the requests that waited for them, once this engine's requests have waited as long. If
 * some of these replicas need more time, the place is reserved: no later engine gets it. An engine that is replaced
 * without room for both versions gives up one of its own replicas.
 *
 * @returns null if there is no room now
 */
export function makeRoom(draft: Draft, engine: EngineState, spec: EngineSpec, need: PlaceNeed): Placement | null {
  const occupants = plannedOccupants(draft, engine, stayingReplica);
  if (engine.rollout?.state === 'checking' && engine.replicas.some(({ phase }) => phase === 'ready')) {
    return replaceOwn(draft, engine, need, occupants);
  }
  const { idle, busy, later } = evictables(draft, engine);
  const hosts = hostsOf(draft, engine);
  const now = [...idle, ...busy];
  const eviction = findEviction(need, hosts, occupants, idle) ?? findEviction(need, hosts, occupants, now);
  if (eviction !== null) {
    for (const victimId of eviction.victims) evict(draft, engine, victimId);
    return eviction.placement;
  }
  const awaited = findEviction(need, hosts, occupants, [...now, ...later]);
  if (awaited === null) return null;
  draft.reserved.push(claimOccupant(engine, spec, awaited.placement));
  for (const victimId of awaited.victims) draft.spokenFor.add(victimId);
  return null;
}

/**
 * Drains the engine's own outdated replicas where the new one does not fit beside them: as few as possible, those with
 * the fewest requests first.
 */
function replaceOwn(
  draft: Draft,
  engine: EngineState,
  need: PlaceNeed,
  occupants: readonly Occupant[],
): Placement | null {
  const old = engine.replicas
    .filter((replica) => replica.phase === 'ready' && isOutdated(engine, replica))
    .map((replica) => ({ replicaId: replica.id, worth: leasesOn(draft, engine, replica) }));
  const eviction = findEviction(need, hostsOf(draft, engine), occupants, old);
  if (eviction === null) return null;
  noteEvent(draft, engine, 'no room for new replicas beside the old ones; replacing them one by one');
  for (const replica of engine.replicas) {
    if (eviction.victims.includes(replica.id)) drain(draft, engine, replica, 'rollout');
  }
  return eviction.placement;
}

/** An external scheduler needs a moment to notice freed resources. */
const freedMs = 2000;

/**
 * Makes room for replicas for which an external scheduler finds no place. Only that scheduler knows what would fit, so
 * one replica leaves at a time, and the next one if that did not help.
 */
export function makeRoomElsewhere(draft: Draft, engines: readonly EngineState[]): void {
  const { observed, nowMs } = draft.facts;
  for (const engine of engines) {
    for (const replica of engine.replicas) {
      if (replica.phase !== 'creating' || observed.get(replica.id)?.noRoom !== true) continue;
      if (engine.blocked?.kind !== 'no_room') engine.blocked = failureCause('no_room');
      const isEnding = draft.engines.some(
        (other) =>
          driverType(other) === driverType(engine) &&
          other.replicas.some(({ phase }) => phase === 'draining' || phase === 'stopping'),
      );
      replica.noRoomSinceMs = isEnding ? null : (replica.noRoomSinceMs ?? nowMs);
      if (replica.noRoomSinceMs === null) continue;
      due(draft, replica.noRoomSinceMs + freedMs);
      if (nowMs < replica.noRoomSinceMs + freedMs) continue;
      if (!isNeeded(draft, engine)) stopNow(draft, engine, replica);
      else giveWay(draft, engine);
    }
  }
}

/** True if a replica without a place is still needed. */
function isNeeded(draft: Draft, engine: EngineState): boolean {
  const { startRequested, recovering, rollout, replicas } = engine;
  const { waiting, leases } = needOf(draft, engine);
  const isBelowMin = replicas.filter(({ phase }) => phase === 'ready').length < settings(engine).min;
  return waiting + leases > 0 || startRequested || recovering || rollout?.state === 'checking' || isBelowMin;
}

function giveWay(draft: Draft, engine: EngineState): void {
  const byWorth = (a: Evictable, b: Evictable): number => a.worth - b.worth;
  const old = engine.replicas.filter((replica) => replica.phase === 'ready' && isOutdated(engine, replica));
  if (engine.rollout?.state === 'checking' && old.length > 0) {
    const [first] = old.toSorted((a, b) => leasesOn(draft, engine, a) - leasesOn(draft, engine, b));
    if (first === undefined) return;
    noteEvent(draft, engine, 'no room for new replicas beside the old ones; replacing them one by one');
    drain(draft, engine, first, 'rollout');
    return;
  }
  const room = evictables(draft, engine);
  const idle = room.idle.filter(usesGpus(draft));
  const [victim] = (idle.length > 0 ? idle : room.busy.filter(usesGpus(draft))).toSorted(byWorth);
  if (victim !== undefined) evict(draft, engine, victim.replicaId);
}

function usesGpus(draft: Draft): (victim: Evictable) => boolean {
  return ({ replicaId }) => {
    const driver = ownerOf(draft, replicaId)?.engine.spec.definition.driver;
    return driver !== undefined && 'gpus' in driver && driver.gpus !== null;
  };
}

function evict(draft: Draft, engine: EngineState, victimId: string): void {
  const victim = ownerOf(draft, victimId);
  if (victim === null) return;
  noteEvent(draft, victim.engine, `stopping a replica to make room for ${engine.id}`, { replicaId: victimId });
  if (victim.replica.phase === 'asleep') stopNow(draft, victim.engine, victim.replica);
  else drain(draft, victim.engine, victim.replica, 'room');
  victim.engine.target = Math.max(0, victim.engine.target - 1);
}

function ownerOf(draft: Draft, replicaId: string): { engine: EngineState; replica: ReplicaState } | null {
  for (const engine of draft.engines) {
    const replica = engine.replicas.find(({ id }) => id === replicaId);
    if (replica !== undefined) return { engine, replica };
  }
  return null;
}

interface Room {
  readonly idle: Evictable[];
  readonly busy: Evictable[];
  /** Replicas that become idle or busy candidates while requests still wait for the room. */
  readonly later: Evictable[];
}

/**
 * Returns the replicas that may leave. Worth grows with use: sleeping replicas go first, then those that were idle
 * longest.
 */
function evictables(draft: Draft, forEngine: EngineState): Room {
  const room: Room = { idle: [], busy: [], later: [] };
  for (const engine of draft.engines) if (mayGiveWay(engine, forEngine)) addEvictables(draft, room, engine, forEngine);
  const isFree = ({ replicaId }: Evictable): boolean => !draft.spokenFor.has(replicaId);
  return { idle: room.idle.filter(isFree), busy: room.busy.filter(isFree), later: room.later.filter(isFree) };
}

function mayGiveWay(engine: EngineState, forEngine: EngineState): boolean {
  if (engine === forEngine || settings(engine).pinned || driverType(engine) !== driverType(forEngine)) return false;
  const group = groupOf(engine);
  return group?.persistent !== true || group.name === groupOf(forEngine)?.name;
}

function groupOf({ spec }: EngineState) {
  return takesOf(spec.definition).group;
}

function addEvictables(draft: Draft, room: Room, engine: EngineState, forEngine: EngineState): void {
  const { nowMs } = draft.facts;
  const { min, upMinMs } = settings(engine);
  const need = needOf(draft, engine);
  const asleep = engine.replicas.filter(({ phase }) => phase === 'asleep');
  room.idle.push(...asleep.map(({ id }) => ({ replicaId: id, worth: -Infinity })));
  const ready = engine.replicas.filter(({ phase }) => phase === 'ready');
  const spare = ready.slice(0, Math.max(0, ready.length - min));
  const isIdle = need.waiting + need.leases === 0;
  const waitedSinceMs = forEngine.waitingSinceMs ?? nowMs;
  for (const replica of spare) {
    const upAtMs = replica.sinceMs + upMinMs;
    const freeAtMs = isIdle ? upAtMs : Math.max(upAtMs, waitedSinceMs + upMinMs);
    if (nowMs < freeAtMs) due(draft, freeAtMs);
    if (nowMs < freeAtMs || !(isIdle || hasServed(draft, engine, replica))) {
      if (mayBeWaitedFor(forEngine, freeAtMs)) room.later.push({ replicaId: replica.id, worth: need.leases });
    } else if (isIdle) room.idle.push({ replicaId: replica.id, worth: -need.idleMs });
    else room.busy.push({ replicaId: replica.id, worth: need.leases });
  }
  if (!mayBeWaitedFor(forEngine, nowMs + upMinMs)) return;
  // Replicas that are starting, or wait for room, must serve before they can leave.
  const coming = engine.replicas.filter(isArriving).map(({ id }) => id);
  if (engine.claim !== null) coming.push(claimId(engine));
  const extra = Math.max(0, ready.length + coming.length - min - spare.length);
  room.later.push(...coming.slice(0, extra).map((replicaId) => ({ replicaId, worth: need.waiting })));
}

/** True if requests for the engine wait and will not have timed out by then. */
function mayBeWaitedFor(forEngine: EngineState, untilMs: number): boolean {
  const { waitingSinceMs } = forEngine;
  return waitingSinceMs !== null && untilMs < waitingSinceMs + settings(forEngine).startTimeoutMs;
}

/** True if the requests that waited when the replica became ready have reached it, or a drain's time has passed. */
function hasServed(draft: Draft, engine: EngineState, replica: ReplicaState): boolean {
  const { facts } = draft;
  const untilMs = replica.sinceMs + settings(engine).drainMs;
  if (facts.nowMs >= untilMs) return true;
  due(draft, untilMs);
  const { readyVersion } = replica;
  if (readyVersion === null) return false;
  return facts.demands.every(
    ({ seenVersion, engines }) => seenVersion >= readyVersion && (engines[engine.id]?.waiting ?? 0) === 0,
  );
}
