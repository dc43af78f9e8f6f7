import { failureCause, type FailureKind, type HostReport, type Placement } from '#core/fleet/drivers/drivers.ts';
import { type Draft, driverType, due, noteEvent, settings } from './draft.ts';
import { makeRoom } from './eviction.ts';
import { failRequest, refuseRollout } from './failure.ts';
import { judgeMemory, noteTouched } from './gpu-memory.ts';
import { anyReplica, hostsOf, placeNeed, plannedOccupants, presentOccupants, stayingReplica } from './occupants.ts';
import { beginRecord } from './start-record.ts';
import { findPlace, hasPlace, holdersOf, type PlaceNeed, type PlaceOutcome } from './placement.ts';
import {
  type Claim,
  type EngineState,
  hasFallback,
  isAlive,
  isArriving,
  isOutdated,
  isRefused,
  specToStart,
} from './state.ts';

/** Starts missing replicas, one per engine at a time. The engine that has waited longest chooses first. */
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
    if (engine.claim !== null && !isSound(draft, engine, engine.claim)) engine.claim = null;
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
  // A replica that is ending keeps its memory: where devices are unknown, the next replica waits for its end.
  const liveReplicas = engine.replicas.filter(({ phase }) => phase !== 'lost' && phase !== 'asleep').length;
  const isRollout = engine.rollout?.state === 'checking';
  if (liveReplicas >= max + (isRollout ? 1 : 0)) return false;
  const retryAtMs = engine.failure?.retryAtMs ?? 0;
  if (draft.facts.nowMs >= retryAtMs) return true;
  due(draft, retryAtMs);
  return false;
}

/** True if the claimed place will be free once the leaving replicas have ended. */
function isSound(draft: Draft, engine: EngineState, { placement }: Claim): boolean {
  const need = placeNeed(engine, specToStart(engine));
  if (need === null) return true;
  const hosts = hostsOf(draft, engine).filter(({ reachable }) => reachable);
  return hasPlace(need, placement, hosts, plannedOccupants(draft, engine, stayingReplica));
}

/** @returns null if there is no room now, or never will be */
function claim(draft: Draft, engine: EngineState): Claim | null {
  const { nowMs } = draft.facts;
  const spec = specToStart(engine);
  const need = placeNeed(engine, spec);
  const claimed = (placement: Placement): Claim => {
    engine.blocked = null;
    return { placement, sinceMs: nowMs, freeSinceMs: null, probeAtMs: nowMs, tries: 0 };
  };
  if (nowMs < engine.pausedUntilMs) {
    due(draft, engine.pausedUntilMs);
    return null;
  }
  // Swarm places its tasks itself.
  if (need === null) return claimed({ host: 'swarm', gpuIds: [] });
  const found = placeFor(draft, engine, need);
  if (found.type === 'placed') return claimed(found.placement);
  if (found.type !== 'full') {
    refusePlace(draft, engine, found, need);
    return null;
  }
  const placement = makeRoom(draft, engine, spec, need);
  if (placement !== null) return claimed(placement);
  if (engine.blocked?.kind !== 'no_room')
    noteEvent(draft, engine, 'an engine waits, because its hosts have no room for it; requests for it wait');
  engine.blocked = failureCause('no_room', holdersText(draft, engine, need));
  return null;
}

const holdersMax = 10;

/** Names the engines in the way, for operators. */
function holdersText(draft: Draft, engine: EngineState, need: PlaceNeed): string {
  const holders = holdersOf(need, hostsOf(draft, engine), plannedOccupants(draft, engine, anyReplica));
  const more = holders.length > holdersMax ? ` and ${holders.length - holdersMax} more` : '';
  return holders.length === 0 ? '' : `in use by ${holders.slice(0, holdersMax).join(', ')}${more}`;
}

/** Finds a place that is free now, otherwise one that is free once the leaving replicas have ended. */
function placeFor(draft: Draft, engine: EngineState, need: PlaceNeed): PlaceOutcome {
  const hosts = hostsOf(draft, engine);
  const now = findPlace(need, hosts, plannedOccupants(draft, engine, anyReplica));
  return now.type === 'full' ? findPlace(need, hosts, plannedOccupants(draft, engine, stayingReplica)) : now;
}

type NoPlace = Extract<PlaceOutcome, { type: 'unreachable' | 'impossible' }>;

function refusePlace(draft: Draft, engine: EngineState, found: NoPlace, need: PlaceNeed): void {
  if (found.type === 'unreachable') {
    failRequest(draft, engine, failureCause('host_unreachable', troublesOf(found.hosts)));
    return;
  }
  const kind = found.lacks === 'memory' ? 'memory' : need.gpus === null ? 'no_node' : 'no_accelerator';
  const cause = failureCause(kind, lackText(need, hostsOf(draft, engine), kind));
  if (isFilesFault(draft, engine)) refuseRollout(draft, engine, cause);
  else failRequest(draft, engine, cause);
}

/** Describes what is needed and what there is, for operators. */
function lackText({ memoryBytes }: PlaceNeed, hosts: readonly HostReport[], kind: FailureKind): string {
  const gib = (bytes: number): string => `${Math.round((bytes / 2 ** 30) * 10) / 10} GiB`;
  if (kind === 'memory') {
    const limits = hosts.flatMap((host) =>
      host.memoryBytes === undefined ? [] : [`${host.name} has ${gib(host.memoryBytes)} for engines`],
    );
    return `the engine needs ${gib(memoryBytes)}; ${limits.join(', ')}`;
  }
  return troublesOf(hosts);
}

/** True if no host has what the changed file asks for, and some have what the spec before needs. */
function isFilesFault(draft: Draft, engine: EngineState): boolean {
  const { lastGood } = engine;
  if (lastGood === null || !hasFallback(engine) || isRefused(engine)) return false;
  const hosts = hostsOf(draft, engine);
  // A host that was never reached may have anything.
  if (hosts.some(({ reachable, gpus }) => !reachable && gpus.length === 0)) return false;
  const need = placeNeed(engine, lastGood);
  return need === null || !['impossible', 'unreachable'].includes(findPlace(need, hosts, []).type);
}

function troublesOf(hosts: readonly HostReport[]): string {
  return hosts.flatMap(({ name, trouble }) => (trouble === undefined ? [] : [`${name}: ${trouble}`])).join('; ');
}

/** Requests the start once no occupant is in its place and the memory of its devices is free. */
function tryStart(draft: Draft, engine: EngineState, own: Claim): void {
  const { nowMs, newReplicaId } = draft.facts;
  const { placement } = own;
  const spec = specToStart(engine);
  const need = placeNeed(engine, spec);
  if (need !== null && !hasPlace(need, placement, hostsOf(draft, engine), presentOccupants(draft))) {
    engine.claim = { ...own, freeSinceMs: null };
    return;
  }
  const current = { ...own, freeSinceMs: own.freeSinceMs ?? nowMs };
  engine.claim = current;
  if (placement.gpuIds.length > 0 && !judgeMemory(draft, engine, current)) return;
  const replicaId = newReplicaId(engine.id);
  engine.claim = null;
  engine.lastStart = beginRecord(replicaId, own.sinceMs, nowMs);
  engine.replicas.push({
    id: replicaId,
    specHash: spec.hash,
    placement,
    phase: 'creating',
    sinceMs: nowMs,
    startRequestedAtMs: nowMs,
    observed: false,
    deadlineMs: nowMs + draft.policy.createTimeoutMs,
    readyAtMs: null,
    readyVersion: null,
    drain: null,
    stale: false,
    progress: null,
    unhealthySinceMs: null,
    silence: null,
    canaryRuns: false,
    wedged: null,
  });
  draft.actions.push({ type: 'start', engineId: engine.id, replicaId, spec, placement });
  noteEvent(draft, engine, 'starting a replica', { replicaId });
}
