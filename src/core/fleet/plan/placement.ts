import type { EngineGroup, GpuNeed } from '#core/catalog/catalog.ts';
import type { Gpu, HostReport, Placement } from '#core/fleet/drivers/drivers.ts';

/**
 * Which replica gets which place. Pure: what is taken, what there is and what is needed come in, a placement comes out.
 * A device is given to one replica at a time, all devices of a replica are on one host, what replicas of a host need of
 * its memory is never more than it has, and a host that cannot be reached is not chosen.
 */

/** An engine as its group sees it. */
interface Member {
  readonly engineId: string | null;
  readonly group: EngineGroup | null;
}

export interface PlaceNeed extends Member {
  readonly gpus: GpuNeed | null;
  /** Of the host's memory; 0 where nobody says. */
  readonly memoryBytes: number;
  /** Occupants, by their `runs`, beside all of which it found too little memory; empty: none. */
  readonly neighbours: ReadonlySet<string>;
  /** Names of hosts or pools; empty: any. */
  readonly hosts: readonly string[];
  readonly strategy: 'pack' | 'spread';
}

/** A replica, or a claim for one, that keeps its place. */
export interface Occupant extends Member {
  /** For a claim a text of its own; null for what no engine of the files runs. */
  readonly replicaId: string | null;
  /** Engine and spec as one text, see `runsKey`; null where they are not known. */
  readonly runs: string | null;
  readonly placement: Placement;
  readonly memoryBytes: number;
  /** It is about to start, and must then find what it was promised. */
  readonly isClaim: boolean;
  /** Nobody stops it to make room. */
  readonly isKept: boolean;
}

/** A replica that could be stopped to make room. */
export interface Evictable {
  readonly replicaId: string;
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
  | { readonly type: 'impossible'; readonly lacks: 'gpus' | 'memory' };

/** One text for a device of a host. */
export function gpuKey(host: string, gpuId: string): string {
  return `${host}\0${gpuId}`;
}

/** Whether the one may start only when the other is not there. What is kept running anyway is lived with. */
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

/** Whether a replica with this need could be at this very place beside these. */
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
  const byHost = Map.groupBy(occupants, ({ placement }) => placement.host);
  const worths = new Map(evictable.map(({ replicaId, worth }) => [replicaId, worth]));
  const found = hosts
    .filter((host) => host.reachable && isAble(need, host))
    .flatMap((host) => evictOn(need, host, byHost.get(host.name) ?? [], worths) ?? []);
  const [best] = found.toSorted((a, b) => a.victims.length - b.victims.length || a.worth - b.worth);
  return best === undefined ? null : { placement: best.placement, victims: best.victims };
}

/** Ids of engines that have what is needed, on hosts that would do. */
export function holdersOf(need: PlaceNeed, hosts: readonly HostReport[], occupants: readonly Occupant[]): string[] {
  const able = new Map(hosts.filter((host) => isAble(need, host)).map((host) => [host.name, host]));
  const holders = occupants.flatMap((occupant) => {
    const host = able.get(occupant.placement.host);
    if (host === undefined) return [];
    const wanted = new Set(usable(need, host).map(({ id }) => id));
    return isInTheWay(need, occupant, wanted) ? [occupant.engineId ?? 'something that no engine file knows'] : [];
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
    const gone = new Set(victims.map(({ replicaId }) => replicaId));
    return here.filter(({ replicaId }) => replicaId === null || !gone.has(replicaId));
  };
  const isEnough = (victims: readonly Victim[]): boolean => fits(need, host, without(victims));
  let count = 0;
  while (count <= inTheWay.length && !isEnough(inTheWay.slice(0, count))) count += 1;
  if (count > inTheWay.length) return null;
  // A first small victim may turn out not to be needed once a larger one is gone; the worthiest is spared first.
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

/** Its end would help. */
function isInTheWay(need: PlaceNeed, occupant: Occupant, wanted: ReadonlySet<string>): boolean {
  return (
    (need.memoryBytes > 0 && occupant.memoryBytes > 0) ||
    (countOf(need) > 0 && occupant.placement.gpuIds.some((id) => wanted.has(id))) ||
    (occupant.runs !== null && need.neighbours.has(occupant.runs)) ||
    clash(need, occupant)
  );
}

/** There is room beside these. */
function fits(need: PlaceNeed, host: HostReport, here: readonly Occupant[]): boolean {
  if (freeOf(need, host, here).length < countOf(need)) return false;
  const limitBytes = host.memoryBytes ?? Infinity;
  const usedBytes = here.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  if (need.memoryBytes > 0 && usedBytes + need.memoryBytes > limitBytes) return false;
  if (here.some((occupant) => clash(need, occupant))) return false;
  const running = new Set(here.map(({ runs }) => runs));
  return need.neighbours.size === 0 || [...need.neighbours].some((one) => !running.has(one));
}

/** What is about to start may not be overtaken by what it would have to stop. */
function clash(need: PlaceNeed, occupant: Occupant): boolean {
  return excludes(need, occupant) || (occupant.isClaim && excludes(occupant, { ...need, isKept: false }));
}

/** The host alone would do. */
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

/** Devices of a host that would do, taken or not. */
function usable({ gpus: need }: PlaceNeed, { gpus }: HostReport): readonly Gpu[] {
  if (need === null) return gpus;
  return gpus.filter(({ memoryBytes, profile }) => {
    const enough = need.memoryBytesMin === null || (memoryBytes !== null && memoryBytes >= need.memoryBytesMin);
    const isOne = need.profile === null || profile?.toLowerCase().includes(need.profile.toLowerCase()) === true;
    return enough && isOne;
  });
}

/** The smallest that will do first, so that large ones stay for those who need them. */
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

/** The host with the least left first; without devices the one that runs most. */
function packs(a: Place, b: Place): number {
  return a.free.length - b.free.length || b.used - a.used;
}
