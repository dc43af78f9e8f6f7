import type { EngineSpec, HostReport, Placement } from './driver.ts';
import { judgeMemory, noteTouched } from './gpu-memory.ts';
import { type Evictable, findEviction, findPlace, gpuKey, type Occupant, type PlaceNeed } from './gpu-slots.ts';
import {
  type Claim,
  type EngineState,
  hasFallback,
  isAlive,
  isArriving,
  isOutdated,
  isRefused,
  type ReplicaState,
  specToStart,
} from './leader-state.ts';
import { type Draft, driverType, due, leasesOn, needOf, settings, tell } from './plan-draft.ts';
import { failStart, refuseRollout } from './plan-observe.ts';
import { drain, stopNow } from './plan-replica.ts';
import { failureCause } from './start-failure.ts';

/** Starts what is missing, one replica of an engine at a time; who has waited longest chooses first. */
export function placeStarts(draft: Draft, engines: readonly EngineState[]): void {
  noteTouched(draft);
  const wanting = engines
    .filter((engine) => wantsStart(draft, engine))
    .toSorted((a, b) => (a.waitingSinceMs ?? Infinity) - (b.waitingSinceMs ?? Infinity) || 0);
  for (const engine of engines) {
    if (wanting.includes(engine)) continue;
    engine.claim = null;
    engine.blocked = null;
  }
  for (const engine of wanting) {
    engine.claim ??= claim(draft, engine);
    if (engine.claim !== null) tryStart(draft, engine, engine.claim);
  }
}

function wantsStart(draft: Draft, engine: EngineState): boolean {
  if (driverType(engine) === 'external' || engine.target === 0) return false;
  const alive = engine.replicas.filter(isAlive);
  const current = alive.filter((replica) => !isOutdated(engine, replica));
  if (current.length >= engine.target || current.some(isArriving)) return false;
  const { max } = settings(engine);
  // What still ends keeps its memory: where the devices are not known, the next one waits for it.
  const isThere = engine.replicas.filter(({ phase }) => phase !== 'lost' && phase !== 'asleep').length;
  const isRollout = engine.rollout?.state === 'checking';
  if (isThere >= max + (isRollout ? 1 : 0)) return false;
  const retryAtMs = engine.failure?.retryAtMs ?? 0;
  if (draft.facts.nowMs >= retryAtMs) return true;
  due(draft, retryAtMs);
  return false;
}

function placeNeed({ definition: { driver } }: EngineSpec): PlaceNeed | null {
  if (driver.type !== 'docker') return null;
  return { gpus: driver.gpus, hosts: driver.hosts, order: driver.placement };
}

/** @returns null when there is no room now, or never will be */
function claim(draft: Draft, engine: EngineState): Claim | null {
  const { nowMs } = draft.facts;
  const need = placeNeed(specToStart(engine));
  const claimed = (placement: Placement): Claim => {
    engine.blocked = null;
    return { placement, sinceMs: nowMs, freeSinceMs: null, probeAtMs: nowMs, tries: 0 };
  };
  // Swarm places by itself; child processes know one machine and no devices.
  if (need === null) return claimed({ host: driverType(engine) === 'swarm' ? 'swarm' : 'local', gpuIds: [] });
  const hosts = hostsOf(draft, engine);
  const occupants = occupantsOf(draft, engine);
  const found = findPlace(need, hosts, occupants);
  switch (found.type) {
    case 'placed':
      return claimed(found.placement);
    case 'impossible': {
      const kind = need.gpus === null ? 'no_room' : 'no_accelerator';
      if (isFilesFault(draft, engine)) refuseRollout(draft, engine, failureCause(kind));
      else refuse(draft, engine, kind);
      return null;
    }
    case 'unreachable':
      refuse(draft, engine, 'host_unreachable', troublesOf(found.hosts));
      return null;
    case 'full': {
      const placement = makeRoom(draft, engine, need, occupants);
      if (placement !== null) return claimed(placement);
      if (engine.blocked?.kind !== 'no_room') tell(draft, engine, 'an engine waits for a GPU');
      engine.blocked = failureCause('no_room');
      return null;
    }
  }
}

function hostsOf(draft: Draft, engine: EngineState): readonly HostReport[] {
  return draft.facts.hosts.get(driverType(engine)) ?? [];
}

/** No host has what the changed file asks for, and some have what the one before did. */
function isFilesFault(draft: Draft, engine: EngineState): boolean {
  const { lastGood } = engine;
  if (lastGood === null || !hasFallback(engine) || isRefused(engine)) return false;
  const hosts = hostsOf(draft, engine);
  // One that was never reached may have anything.
  if (hosts.some(({ reachable, gpus }) => !reachable && gpus.length === 0)) return false;
  const need = placeNeed(lastGood);
  return need === null || !['impossible', 'unreachable'].includes(findPlace(need, hosts, []).type);
}

type NoPlace = 'no_room' | 'no_accelerator' | 'host_unreachable';

/** @param detail for operators */
function refuse(draft: Draft, engine: EngineState, kind: NoPlace, detail = ''): void {
  engine.crashes = Math.min(engine.crashes + 1, draft.policy.crashesMax - 1);
  failStart(draft, engine, failureCause(kind, detail), false);
}

function troublesOf(hosts: readonly HostReport[]): string {
  return hosts.flatMap(({ name, trouble }) => (trouble === undefined ? [] : [`${name}: ${trouble}`])).join('; ');
}

/** Everything that keeps devices: replicas of any phase, known to the plan or only seen, and claims of others. */
function occupantsOf(draft: Draft, engine: EngineState): Occupant[] {
  const own = draft.engines.flatMap(({ id, replicas, claim: other }) => [
    ...replicas.map(({ placement }) => ({ engineId: id, placement })),
    ...(other === null || id === engine.id ? [] : [{ engineId: id, placement: other.placement }]),
  ]);
  const known = new Set(draft.engines.flatMap(({ replicas }) => replicas.map(({ id }) => id)));
  const seen = [...draft.facts.observed.values()]
    .filter(({ state, replica }) => state !== 'exited' && !known.has(replica.id))
    .map(({ replica, placement }) => ({ engineId: replica.engineId, placement }));
  return [...own, ...seen];
}

/**
 * Takes idle ones out, the least recently used first; where all are busy, one that has been up for its minimum, once
 * who waits here has waited as long. An engine that renews itself without room beside gives up one of its own.
 */
function makeRoom(
  draft: Draft,
  engine: EngineState,
  need: PlaceNeed,
  occupants: readonly Occupant[],
): Placement | null {
  if (engine.rollout?.state === 'checking' && engine.replicas.some(({ phase }) => phase === 'ready')) {
    return replaceOwn(draft, engine, need, occupants);
  }
  const room = evictables(draft, engine);
  const hosts = hostsOf(draft, engine);
  const eviction = findEviction(need, hosts, occupants, room.idle) ?? findEviction(need, hosts, occupants, room.all);
  if (eviction === null) return null;
  for (const victimId of eviction.victims) evict(draft, engine, victimId);
  return eviction.placement;
}

/** Nothing fits beside: as few of its own old ones as will do go first, those with the fewest requests. */
function replaceOwn(
  draft: Draft,
  engine: EngineState,
  need: PlaceNeed,
  occupants: readonly Occupant[],
): Placement | null {
  const old = engine.replicas
    .filter((replica) => replica.phase === 'ready' && isOutdated(engine, replica))
    .map((replica) => evictable(replica, leasesOn(draft, engine, replica)));
  const eviction = findEviction(need, hostsOf(draft, engine), occupants, old);
  if (eviction === null) return null;
  tell(draft, engine, 'there is no room for the new one beside the old ones: they are replaced one by one');
  for (const replica of engine.replicas) {
    if (eviction.victims.includes(replica.id)) drain(draft, engine, replica, 'rollout');
  }
  return eviction.placement;
}

/** A scheduler that is not ours takes a moment to see what became free. */
const freedMs = 2000;

/**
 * Makes room for replicas that a scheduler which is not ours finds no place for. What would fit is that scheduler's to
 * know, so one replica gives way at a time, and the next one when that did not help.
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

/** Somebody still waits for what has no place. */
function isNeeded(draft: Draft, engine: EngineState): boolean {
  const { startAsked, recovering, rollout, replicas } = engine;
  const { waiting, leases } = needOf(draft, engine);
  const isBelowMin = replicas.filter(({ phase }) => phase === 'ready').length < settings(engine).min;
  return waiting + leases > 0 || startAsked || recovering || rollout?.state === 'checking' || isBelowMin;
}

function giveWay(draft: Draft, engine: EngineState): void {
  const byWorth = (a: Evictable, b: Evictable): number => a.worth - b.worth;
  const old = engine.replicas.filter((replica) => replica.phase === 'ready' && isOutdated(engine, replica));
  if (engine.rollout?.state === 'checking' && old.length > 0) {
    const [first] = old.toSorted((a, b) => leasesOn(draft, engine, a) - leasesOn(draft, engine, b));
    if (first === undefined) return;
    tell(draft, engine, 'there is no room for the new one beside the old ones: they are replaced one by one');
    drain(draft, engine, first, 'rollout');
    return;
  }
  const room = evictables(draft, engine);
  const idle = room.idle.filter(usesGpus(draft));
  const [victim] = (idle.length > 0 ? idle : room.all.filter(usesGpus(draft))).toSorted(byWorth);
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
  tell(draft, victim.engine, `a replica makes room for ${engine.id}`, { replicaId: victimId });
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

/** Worth grows with use: what was idle longest goes first, what is asleep before it. */
function evictables(draft: Draft, forEngine: EngineState) {
  const { nowMs } = draft.facts;
  const idle: Evictable[] = [];
  const busy: Evictable[] = [];
  for (const engine of draft.engines) {
    const { pinned, min, upMinMs } = settings(engine);
    if (engine.id === forEngine.id || pinned || driverType(engine) !== driverType(forEngine)) continue;
    const need = needOf(draft, engine);
    const isIdle = need.waiting + need.leases === 0;
    const waitedMs = nowMs - (forEngine.waitingSinceMs ?? nowMs);
    const spare = engine.replicas.filter(({ phase }) => phase === 'ready').length - min;
    const ready = engine.replicas.filter(({ phase, sinceMs }) => isUp(draft, phase, sinceMs + upMinMs));
    const victims = ready.slice(0, Math.max(0, spare)).map((replica) => evictable(replica, -need.idleMs));
    const asleep = engine.replicas.filter(({ phase }) => phase === 'asleep');
    idle.push(...asleep.map((replica) => evictable(replica, -Infinity)));
    if (isIdle) idle.push(...victims);
    else if (waitedMs >= upMinMs) busy.push(...victims.map((victim) => ({ ...victim, worth: need.leases })));
    else if (victims.length > 0) due(draft, (forEngine.waitingSinceMs ?? nowMs) + upMinMs);
  }
  return { idle, all: [...idle, ...busy] };
}

function isUp(draft: Draft, phase: ReplicaState['phase'], sinceMs: number): boolean {
  if (phase !== 'ready') return false;
  if (draft.facts.nowMs >= sinceMs) return true;
  due(draft, sinceMs);
  return false;
}

function evictable({ id, placement }: ReplicaState, worth: number): Evictable {
  return { replicaId: id, placement, worth };
}

/** Orders the start once nothing of ours is on the devices and their memory is free. */
function tryStart(draft: Draft, engine: EngineState, own: Claim): void {
  const { nowMs, newReplicaId } = draft.facts;
  const { placement } = own;
  const wanted = new Set(placement.gpuIds.map((id) => gpuKey(placement.host, id)));
  const isTaken = occupantsOf(draft, engine).some(({ placement: { host, gpuIds } }) =>
    gpuIds.some((id) => wanted.has(gpuKey(host, id))),
  );
  if (isTaken) {
    engine.claim = { ...own, freeSinceMs: null };
    return;
  }
  const current = { ...own, freeSinceMs: own.freeSinceMs ?? nowMs };
  engine.claim = current;
  if (placement.gpuIds.length > 0 && !judgeMemory(draft, engine, current)) return;
  const spec = specToStart(engine);
  const replicaId = newReplicaId(engine.id);
  engine.claim = null;
  engine.replicas.push({
    id: replicaId,
    specHash: spec.hash,
    placement,
    phase: 'creating',
    sinceMs: nowMs,
    orderedAtMs: nowMs,
    observed: false,
    deadlineMs: nowMs + draft.policy.createTimeoutMs,
    readyAtMs: null,
    drain: null,
    stale: false,
    progress: null,
    unhealthySinceMs: null,
  });
  draft.actions.push({ type: 'start', engineId: engine.id, replicaId, spec, placement });
  tell(draft, engine, 'a replica is started', { replicaId });
}
