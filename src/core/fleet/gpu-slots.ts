import type { GpuNeed } from '#core/catalog/catalog.ts';
import type { Gpu, HostReport, Placement } from './driver.ts';

/**
 * Which replica gets which devices. Pure: what is taken, what there is and what is needed come in, a placement comes
 * out. A device is given to one replica at a time, all devices of a replica are on one host, and a host that cannot be
 * reached is not chosen.
 */

export interface PlaceNeed {
  readonly gpus: GpuNeed | null;
  /** Names of hosts or pools; empty: any. */
  readonly hosts: readonly string[];
  readonly order: 'pack' | 'spread';
}

/** A replica, or a claim for one, that keeps its devices. */
export interface Occupant {
  readonly engineId: string;
  readonly placement: Placement;
}

/** A replica that could be stopped to make room. */
export interface Evictable {
  readonly replicaId: string;
  readonly placement: Placement;
  /** Those with less go first. */
  readonly worth: number;
}

export type PlaceOutcome =
  | { readonly type: 'placed'; readonly placement: Placement }
  /** It would fit if others were not there. */
  | { readonly type: 'full' }
  /** It would fit on a host that cannot be reached now. */
  | { readonly type: 'unreachable'; readonly hosts: readonly HostReport[] }
  /** No host has what it needs. */
  | { readonly type: 'impossible' };

/** One text for a device of a host. */
export function gpuKey(host: string, gpuId: string): string {
  return `${host}\0${gpuId}`;
}

/** Devices that somebody has. */
export function takenGpus(occupants: readonly Occupant[]): Set<string> {
  return new Set(occupants.flatMap(({ placement }) => placement.gpuIds.map((id) => gpuKey(placement.host, id))));
}

export function findPlace(need: PlaceNeed, hosts: readonly HostReport[], occupants: readonly Occupant[]): PlaceOutcome {
  const able = hosts.filter((host) => isAllowed(need, host) && usable(need, host).length >= countOf(need));
  if (able.length === 0) return { type: 'impossible' };
  const reachable = able.filter((host) => host.reachable);
  if (reachable.length === 0) return { type: 'unreachable', hosts: able };
  const taken = takenGpus(occupants);
  const places = reachable
    .map((host) => ({ host, free: freeOf(need, host, taken), used: usedOf(host, occupants) }))
    .filter(({ free }) => free.length >= countOf(need))
    .toSorted((a, b) => (need.order === 'pack' ? packs(a, b) : packs(b, a)));
  const [best] = places;
  if (best === undefined) return { type: 'full' };
  const gpuIds = best.free.slice(0, countOf(need)).map(({ id }) => id);
  return { type: 'placed', placement: { host: best.host.name, gpuIds } };
}

export interface Eviction {
  readonly placement: Placement;
  /** To be stopped before the placement is free. */
  readonly victims: readonly string[];
}

/**
 * The cheapest way to make room: the fewest replicas on one host, those of least worth.
 * @returns null when stopping all that may be stopped is not enough
 */
export function findEviction(
  need: PlaceNeed,
  hosts: readonly HostReport[],
  occupants: readonly Occupant[],
  evictable: readonly Evictable[],
): Eviction | null {
  const taken = takenGpus(occupants);
  const found = hosts
    .filter((host) => host.reachable && isAllowed(need, host) && usable(need, host).length >= countOf(need))
    .flatMap((host) => evictOn(need, host, taken, evictable) ?? []);
  const [best] = found.toSorted((a, b) => a.victims.length - b.victims.length || a.worth - b.worth);
  return best === undefined ? null : { placement: best.placement, victims: best.victims };
}

function evictOn(need: PlaceNeed, host: HostReport, taken: ReadonlySet<string>, evictable: readonly Evictable[]) {
  const wanted = new Set(usable(need, host).map(({ id }) => id));
  const here = evictable
    .filter(({ placement }) => placement.host === host.name && placement.gpuIds.some((id) => wanted.has(id)))
    .toSorted((a, b) => a.worth - b.worth);
  const free = freeOf(need, host, taken).map(({ id }) => id);
  const victims: Evictable[] = [];
  for (const victim of here) {
    if (free.length >= countOf(need)) break;
    victims.push(victim);
    free.push(...victim.placement.gpuIds.filter((id) => wanted.has(id)));
  }
  if (free.length < countOf(need)) return null;
  const gpuIds = free.slice(-countOf(need));
  const kept = new Set(gpuIds);
  // A first small victim may turn out not to be needed once a larger one is gone.
  const needed = victims.filter(({ placement }) => placement.gpuIds.some((id) => kept.has(id)));
  const worth = Math.max(...needed.map((victim) => victim.worth));
  return { placement: { host: host.name, gpuIds }, victims: needed.map(({ replicaId }) => replicaId), worth };
}

function isAllowed(need: PlaceNeed, { name, pools }: HostReport): boolean {
  return need.hosts.length === 0 || need.hosts.some((wanted) => wanted === name || pools.includes(wanted));
}

function countOf({ gpus }: PlaceNeed): number {
  return gpus?.count ?? 0;
}

/** Devices of a host that would do, taken or not. */
function usable({ gpus: need }: PlaceNeed, { gpus }: HostReport): readonly Gpu[] {
  if (need === null) return gpus;
  return gpus.filter(({ memoryBytes, profile }) => {
    const enough = need.memoryBytesMin === null || (memoryBytes !== null && memoryBytes >= need.memoryBytesMin);
    const fits = need.profile === null || profile?.toLowerCase().includes(need.profile.toLowerCase()) === true;
    return enough && fits;
  });
}

/** The smallest that will do first, so that large ones stay for those who need them. */
function freeOf(need: PlaceNeed, host: HostReport, taken: ReadonlySet<string>): readonly Gpu[] {
  return usable(need, host)
    .filter(({ id }) => !taken.has(gpuKey(host.name, id)))
    .toSorted((a, b) => (a.memoryBytes ?? 0) - (b.memoryBytes ?? 0));
}

function usedOf(host: HostReport, occupants: readonly Occupant[]): number {
  return occupants.filter(({ placement }) => placement.host === host.name).length;
}

interface Place {
  readonly free: readonly Gpu[];
  readonly used: number;
}

/** The host with the least left first; without devices the one that runs most. */
function packs(a: Place, b: Place): number {
  return a.free.length - b.free.length || b.used - a.used;
}
