/**
 * Chooses a replica, as a pure function of the known state.
 *
 * Load. An engine's own count of running and waiting requests includes the requests of all gateways, but may be half a
 * second old. This gateway's leases are exact, but include only its own requests. So the count is used for the moment
 * it was taken, and this gateway's changes since then are added: a burst between two reports spreads as it would
 * without reports. If other gateways send to the same replicas, all of them would choose the same least loaded replica
 * until the next reports. In this case the better of two random replicas is taken, which is nearly as good and does not
 * herd (Mitzenmacher, "How Useful Is Old Information?", 2000).
 *
 * Affinity. A replica whose load is more than `loadBound` times the average is never taken, as in "Consistent Hashing
 * with Bounded Loads" (Mirrokni, Thorup and Zadimoghaddam, 2018). Within this bound, a replica that has cached the
 * whole prompt is preferred whatever its load. A replica that has cached a part of the prompt may be busier than the
 * others by the same part of the bound: a system prompt that is short compared with the rest must not attract all
 * requests to the few replicas that happened to read it first.
 *
 * Several gateways. This gateway does not know which replica another gateway chose, but it can compute the choice. The
 * first block of a prompt that no replica is known to have follows the system prompt, which every gateway soon knows.
 * Rendezvous hashing assigns this block to one replica, the same at every gateway, and this replica is assumed to have
 * the prompt. A single gateway would only lose balance by this.
 */

/** An engine's own counts, and this gateway's leases there at the same moment. */
export interface LoadSample {
  readonly running: number;
  readonly waiting: number;
  /** Monotonic milliseconds. */
  readonly atMs: number;
  readonly leasesThen: number;
}

export interface RouteCandidate {
  readonly id: string;
  /** Running requests of this gateway on the replica. */
  readonly leases: number;
  /** Last load report; null if there is none, or it is too old. */
  readonly load: LoadSample | null;
  /** Number of the prompt's blocks, from the first on, that the replica has read. */
  readonly matchedBlocks: number;
}

export interface RouteRequest {
  /** The prompt's blocks; empty without a usable prompt. */
  readonly chain: Int32Array;
  /** Key of requests that the client wants on the same replica; null if the client sent none. */
  readonly stickyKey: string | null;
}

export type RouteReason = 'prefix' | 'sticky' | 'load' | 'weight';

export interface RouteChoice {
  readonly id: string;
  readonly reason: RouteReason;
}

/**
 * Maximum load as a multiple of the average. 1.25 keeps affinity nearly intact and gives no replica more than a quarter
 * above its share.
 */
const loadBound = 1.25;
/** Share of a prompt from which on a cached prefix takes precedence over a sticky key. */
const deepShare = 0.5;
/** Share of other gateways' requests up to which the difference may be a counting error. */
const foreignShare = 0.125;

interface Weighed {
  readonly id: string;
  readonly matchedBlocks: number;
  /** Known requests on the replica, from this and other gateways. */
  readonly load: number;
}

/** Chooses a replica. @param random returns numbers in [0, 1) @returns null only without candidates */
export function choose(
  candidates: readonly RouteCandidate[],
  { chain, stickyKey }: RouteRequest,
  random: () => number,
): RouteChoice | null {
  const { weighed, shared } = weigh(candidates);
  const bound = loadBound * (1 + weighed.reduce((sum, { load }) => sum + load, 0) / weighed.length);
  const open = weighed.filter(({ load }) => load <= bound);
  const matches = open.map(({ matchedBlocks }) => matchedBlocks);
  const deepest = Math.max(...matches);
  const isDeep = chain.length > 0 && deepest >= chain.length * deepShare;
  if (stickyKey !== null && !isDeep) return chosen(stickiest(open, stickyKey), 'sticky');
  const firstNew = shared && !isDeep ? chain[deepest] : undefined;
  const guess = firstNew === undefined ? null : stickiest(open, String(firstNew));
  const contenders = shared && chain.length === 0 ? drawTwo(open, random) : open;
  const best = cheapest(contenders, random, (one) => {
    const cachedShare = one === guess ? 1 : one.matchedBlocks / Math.max(1, chain.length);
    return one.load - cachedShare * bound;
  });
  const isAffine = best !== null && (best === guess || best.matchedBlocks > Math.min(...matches));
  return chosen(best, isAffine ? 'prefix' : 'load');
}

function chosen(found: Weighed | null, reason: RouteReason): RouteChoice | null {
  return found === null ? null : { id: found.id, reason };
}

/** Returns the loads of candidates, and whether other gateways send requests to them too. */
function weigh(candidates: readonly RouteCandidate[]): { weighed: readonly Weighed[]; shared: boolean } {
  const foreign = candidates.map(({ load }) => (load === null ? null : foreignOf(load)));
  const known = foreign.filter((count) => count !== null);
  const total = known.reduce((sum, count) => sum + count, 0);
  // A replica without a report is not assumed to be empty: it is assumed to have the others' average.
  const assumed = known.length === 0 ? 0 : total / known.length;
  const own = candidates.reduce((sum, { leases }) => sum + leases, 0);
  const weighed = candidates.map(({ id, matchedBlocks, leases }, at) => ({
    id,
    matchedBlocks,
    load: leases + (foreign[at] ?? assumed),
  }));
  return { weighed, shared: total > (own + total) * foreignShare };
}

/**
 * Returns the number of other gateways' requests when the report was taken. The total load now is reported + (leases −
 * leasesThen) = leases + (reported − leasesThen). A negative value means that our requests were still on their way.
 */
function foreignOf({ running, waiting, leasesThen }: LoadSample): number {
  return Math.max(0, running + waiting - leasesThen);
}

function draw<Item>(items: readonly Item[], random: () => number): Item | null {
  return items[Math.floor(random() * items.length)] ?? null;
}

function drawTwo(items: readonly Weighed[], random: () => number): readonly Weighed[] {
  if (items.length <= 2) return items;
  const first = draw(items, random);
  const others = items.filter((item) => item !== first);
  return [first, draw(others, random)].filter((item) => item !== null);
}

/** Returns a random one of the replicas with the lowest cost. */
function cheapest(items: readonly Weighed[], random: () => number, costOf: (item: Weighed) => number): Weighed | null {
  const costs = items.map((item) => costOf(item));
  const lowest = Math.min(...costs);
  return draw(
    items.filter((_, at) => costs[at] === lowest),
    random,
  );
}

/**
 * Chooses by rendezvous hashing (Thaler and Ravishankar, 1998): each key orders the replicas in its own way, equal at
 * every gateway. When a replica is added or removed, the order of the others does not change.
 */
function stickiest(weighed: readonly Weighed[], key: string): Weighed | null {
  let best: Weighed | null = null;
  let bestScore = -1;
  for (const one of weighed) {
    const score = hashText(`${key}\n${one.id}`);
    if (score > bestScore) {
      best = one;
      bestScore = score;
    }
  }
  return best;
}

/** FNV-1a with the finalizer of MurmurHash3; without it, the last characters hardly affect the high bits. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
