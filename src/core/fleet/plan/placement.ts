import type { EngineGroup, GpuNeed } from '#core/catalog/catalog.ts';
import { type Gpu, type HostReport, isSlice, type Placement } from '#core/fleet/drivers/drivers.ts';

/**
 * Chooses a place for each replica. The functions are pure: occupants, hosts and needs come in, a placement comes out.
 * A device serves one replica at a time, and all devices of a replica are on one host. The memory that replicas of a
 * host need never exceeds the host's memory. An unreachable host is not chosen.
 */

/** The fields by which the rules of groups apply. */
interface Member {
  readonly engineId: string | null;
  readonly group: EngineGroup | null;
}

export interface PlaceNeed extends Member {
  readonly gpus: GpuNeed | null;
  /** Bytes of the host's memory; 0 if the file does not say. */
  readonly memoryBytes: number;
  /** Occupants, by their `runs`, beside all of which the engine found too little memory; empty: none. */
  readonly neighbours: ReadonlySet<string>;
  /** Names of allowed hosts or pools; empty: any. */
  readonly hosts: readonly string[];
  readonly strategy: 'pack' | 'spread';
}

/** A replica, or the claim for one, that occupies a place. */
export interface Occupant extends Member {
  /** Id of the replica, or the id of a claim (see `claimId`). null if no engine of the files runs here. */
  readonly replicaId: string | null;
  /** Engine and spec as one text, see `runsKey`; null if unknown. */
  readonly runs: string | null;
  readonly placement: Placement;
  readonly memoryBytes: number;
  /** True for a replica that is about to start, whose place must stay free. */
  readonly isClaim: boolean;
  /** True if the occupant is never stopped to make room. */
  readonly isKept: boolean;
}

/** A replica that may be stopped to make room. */
export interface Evictable {
  readonly replicaId: string;
  /** Replicas with the lowest worth are stopped first. */
  readonly worth: number;
}

export type PlaceOutcome =
  | { readonly type: 'placed'; readonly placement: Placement }
  /** The replica would fit without the other occupants. */
  | { readonly type: 'full' }
  /** The replica would fit on a host that is unreachable now. */
  | { readonly type: 'unreachable'; readonly hosts: readonly HostReport[] }
  /** No host has what the replica needs. */
  | { readonly type: 'impossible'; readonly lacks: 'gpus' | 'memory' };

/** Returns one key for a device of a host. */
export function gpuKey(host: string, gpuId: string): string {
  return `${host}\0${gpuId}`;
}

/**
 * True if `starting` may start only while `there` does not run. Persistent or kept occupants of another group do not
 * prevent the start.
 */
function excludes(starting: Member, there: Member & Pick<Occupant, 'isKept'>): boolean {
  const { group } = starting;
  if (group === null || starting.engineId === there.engineId) return false;
  if (group.name === there.group?.name) return group.swap;
  return group.exclusive && there.group?.persistent !== true && !there.isKept;
}

export function findPlace(need: PlaceNeed, hosts: readonly HostReport[], occupants: readonly Occupant[]): PlaceOutcome {
  const able = hosts.filter((host) => isAble(need, host));
  if (able.length === 0) return { type: 'impossible', lacks: lackOf(need, hosts) };
  const reachable = able.filter((host) => host.reachable);
  if (reachable.length === 0) return { type: 'unreachable', hosts: able };
  const byHost = Map.groupBy(occupants, ({ placement }) => placement.host);
  const places = reachable
    .flatMap((host) => {
      const here = byHost.get(host.name) ?? [];
      return fits(need, host, here) ? [{ host, free: freeOf(need, host, here), used: here.length }] : [];
    })
    .toSorted((a, b) => (need.strategy === 'pack' ? packs(a, b) : packs(b, a)));
  const [best] = places;
  if (best === undefined) return { type: 'full' };
  const gpuIds = best.free.slice(0, countOf(need)).map(({ id }) => id);
  return { type: 'placed', placement: { host: best.host.name, gpuIds } };
}

/** True if a replica with this need fits exactly at this placement beside these occupants. */
export function hasPlace(
  need: PlaceNeed,
  { host: name, gpuIds }: Placement,
  hosts: readonly HostReport[],
  occupants: readonly Occupant[],
): boolean {
  const host = hosts.find((one) => one.name === name);
  if (host === undefined || !isAble(need, host) || gpuIds.length !== countOf(need)) return false;
  const here = occupants.filter(({ placement }) => placement.host === name);
  const free = new Set(freeOf(need, host, here).map(({ id }) => id));
  return gpuIds.every((id) => free.has(id)) && fits(need, host, here);
}

export interface Eviction {
  readonly placement: Placement;
  /** Replicas to stop before the placement is free. */
  readonly victims: readonly string[];
}

/**
 * Finds the cheapest way to make room: the fewest replicas on one host, with the lowest worth.
 * @returns null if stopping all evictable replicas is not enough
 */
export function findEviction(
  need: PlaceNeed,
  hosts: readonly HostReport[],
  occupants: readonly Occupant[],
  evictable: readonly Evictable[],
): Eviction | null {
  const byHost = Map.groupBy(occupants, ({ placement }) => placement.host);
  const worths = new Map(evictable.map(({ replicaId, worth }) => [replicaId, worth]));
  const found = hosts
    .filter((host) => host.reachable && isAble(need, host))
    .flatMap((host) => evictOn(need, host, byHost.get(host.name) ?? [], worths) ?? []);
  const [best] = found.toSorted((a, b) => a.victims.length - b.victims.length || a.worth - b.worth);
  return best === undefined ? null : { placement: best.placement, victims: best.victims };
}

/** Returns the ids of the engines that occupy the needed resources on suitable hosts. */
export function holdersOf(need: PlaceNeed, hosts: readonly HostReport[], occupants: readonly Occupant[]): string[] {
  const able = new Map(hosts.filter((host) => isAble(need, host)).map((host) => [host.name, host]));
  const holders = occupants.flatMap((occupant) => {
    const host = able.get(occupant.placement.host);
    if (host === undefined) return [];
    const wanted = new Set(usable(need, host).map(({ id }) => id));
    return isInTheWay(need, occupant, wanted) ? [occupant.engineId ?? 'a container without an engine file'] : [];
  });
  return [...new Set(holders)].toSorted();
}

interface Victim {
  readonly replicaId: string;
  readonly worth: number;
}

function evictOn(need: PlaceNeed, host: HostReport, here: readonly Occupant[], worths: ReadonlyMap<string, number>) {
  const wanted = new Set(usable(need, host).map(({ id }) => id));
  const inTheWay = here
    .filter((occupant) => isInTheWay(need, occupant, wanted))
    .flatMap(({ replicaId }) => {
      const worth = replicaId === null ? undefined : worths.get(replicaId);
      return replicaId === null || worth === undefined ? [] : [{ replicaId, worth }];
    })
    .toSorted((a, b) => a.worth - b.worth);
  const without = (victims: readonly Victim[]): Occupant[] => {
    const removed = new Set(victims.map(({ replicaId }) => replicaId));
    return here.filter(({ replicaId }) => replicaId === null || !removed.has(replicaId));
  };
  const isEnough = (victims: readonly Victim[]): boolean => fits(need, host, without(victims));
  let count = 0;
  while (count <= inTheWay.length && !isEnough(inTheWay.slice(0, count))) count += 1;
  if (count > inTheWay.length) return null;
  // An early small victim may be unnecessary once a larger one is chosen. The victims with the highest worth are spared
  // first.
  const victims = inTheWay
    .slice(0, count)
    .toReversed()
    .reduce<readonly Victim[]>(
      (kept, one) => {
        const fewer = kept.filter((other) => other !== one);
        return isEnough(fewer) ? fewer : kept;
      },
      inTheWay.slice(0, count),
    );
  const worth = Math.max(-Infinity, ...victims.map((victim) => victim.worth));
  const gpuIds = freeOf(need, host, without(victims))
    .slice(0, countOf(need))
    .map(({ id }) => id);
  return { placement: { host: host.name, gpuIds }, victims: victims.map(({ replicaId }) => replicaId), worth };
}

/** True if stopping the occupant would help. */
function isInTheWay(need: PlaceNeed, occupant: Occupant, wanted: ReadonlySet<string>): boolean {
  return (
    (need.memoryBytes > 0 && occupant.memoryBytes > 0) ||
    (countOf(need) > 0 && occupant.placement.gpuIds.some((id) => wanted.has(id))) ||
    (occupant.runs !== null && need.neighbours.has(occupant.runs)) ||
    clash(need, occupant)
  );
}

/** True if the host has room beside these occupants. */
function fits(need: PlaceNeed, host: HostReport, here: readonly Occupant[]): boolean {
  if (freeOf(need, host, here).length < countOf(need)) return false;
  const limitBytes = host.memoryBytes ?? Infinity;
  const usedBytes = here.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  if (need.memoryBytes > 0 && usedBytes + need.memoryBytes > limitBytes) return false;
  if (here.some((occupant) => clash(need, occupant))) return false;
  const running = new Set(here.map(({ runs }) => runs));
  return need.neighbours.size === 0 || [...need.neighbours].some((one) => !running.has(one));
}

/** True if the two must not run together. A claim also excludes engines that it would have to stop. */
function clash(need: PlaceNeed, occupant: Occupant): boolean {
  return excludes(need, occupant) || (occupant.isClaim && excludes(occupant, { ...need, isKept: false }));
}

/** True if the host would fit with no occupants. */
function isAble(need: PlaceNeed, host: HostReport): boolean {
  return isAllowed(need, host) && usable(need, host).length >= countOf(need) && hasMemory(need, host);
}

function isAllowed(need: PlaceNeed, { name, pools }: HostReport): boolean {
  return need.hosts.length === 0 || need.hosts.some((wanted) => wanted === name || pools.includes(wanted));
}

function hasMemory({ memoryBytes }: PlaceNeed, host: HostReport): boolean {
  return memoryBytes <= (host.memoryBytes ?? Infinity);
}

function lackOf(need: PlaceNeed, hosts: readonly HostReport[]): 'gpus' | 'memory' {
  const others = hosts.filter((host) => isAllowed(need, host) && usable(need, host).length >= countOf(need));
  return others.length > 0 ? 'memory' : 'gpus';
}

function countOf({ gpus }: PlaceNeed): number {
  return gpus?.count ?? 0;
}

/** Returns the devices of a host that meet the need, free or not. */
function usable({ gpus: need }: PlaceNeed, { gpus }: HostReport): readonly Gpu[] {
  if (need === null) return gpus;
  return gpus.filter(({ id, memoryBytes, profile }) => {
    // A process of CUDA uses one slice, and slices do not communicate.
    if (need.count > 1 && isSlice(id)) return false;
    const enough = need.memoryBytesMin === null || (memoryBytes !== null && memoryBytes >= need.memoryBytesMin);
    const isOne = need.profile === null || profile?.toLowerCase().includes(need.profile.toLowerCase()) === true;
    return enough && isOne;
  });
}

/** Returns the free devices, smallest first: large ones stay free for engines that need them. */
function freeOf(need: PlaceNeed, host: HostReport, here: readonly Occupant[]): readonly Gpu[] {
  const taken = new Set(here.flatMap(({ placement }) => placement.gpuIds));
  return usable(need, host)
    .filter(({ id }) => !taken.has(id))
    .toSorted((a, b) => (a.memoryBytes ?? 0) - (b.memoryBytes ?? 0));
}

interface Place {
  readonly free: readonly Gpu[];
  readonly used: number;
}

/** Sorts the host with the fewest free devices first; at equal numbers, the host that runs most. */
function packs(a: Place, b: Place): number {
  return a.free.length - b.free.length || b.used - a.used;
}
