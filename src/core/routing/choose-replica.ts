/**
 * The choice of a replica, apart from everything that is known or changed by it.
 *
 * Load. An engine's own count of running and waiting requests sees what all gateways sent, but it is up to half a
 * second old; our leases are exact, but see only ours. So the count stands for the moment it was taken, and what we have
 * sent or had back since then is added: a burst between two reports spreads as it would with none. Where other gateways
 * send to the same replicas, all of them would see the same one least loaded until the next reports: then the better of
 * two drawn at random is taken, which is nearly as good and does not herd (Mitzenmacher, "How Useful Is Old
 * Information?", 2000).
 *
 * Affinity. No replica is taken whose load is more than `loadBound` times the average, as in "Consistent Hashing with
 * Bounded Loads" (Mirrokni, Thorup and Zadimoghaddam, 2018). Within that, one that has all of a prompt cached is
 * preferred whatever its load, and one that has a part of it may be busier than the others by as large a part of the
 * bound: a system prompt that is short beside what follows it must not draw everything to the few replicas that happened
 * to read it first.
 *
 * Several gateways. What another gateway sent somewhere is not known here, but where it would have sent it can be known:
 * the first block of a prompt that none of the replicas is known to have (what comes after the system prompt, since
 * every gateway soon knows that) has a replica of its own by rendezvous hashing, the same one at every gateway, and that
 * is believed to have the prompt. One gateway alone would only lose balance by it.
 */

/** An engine's own counts, and what we had there when they were taken. */
export interface LoadSample {
  readonly running: number;
  readonly waiting: number;
  /** Monotonic milliseconds. */
  readonly atMs: number;
  readonly leasesThen: number;
}

export interface RouteCandidate {
  readonly id: string;
  /** Requests of this gateway that it has now. */
  readonly leases: number;
  /** Its last report; null when there is none that is still worth something. */
  readonly load: LoadSample | null;
  /** Blocks of the prompt, from its first one, that it has read. */
  readonly matchedBlocks: number;
}

export interface RouteRequest {
  /** The prompt's blocks; empty where there is none to go by. */
  readonly chain: Int32Array;
  /** What the client wants kept together; null when it sent nothing of the kind. */
  readonly stickyKey: string | null;
}

export type RouteReason = 'prefix' | 'sticky' | 'load';

export interface RouteChoice {
  readonly id: string;
  readonly reason: RouteReason;
}

/** 1.25 leaves affinity nearly whole and lets no replica have more than a quarter beyond its share. */
const loadBound = 1.25;
/** From this share of a prompt on, where it is cached says more than a key does. */
const deepShare = 0.5;
/** Below this share of foreign requests, the difference is one of counting. */
const foreignShare = 0.125;

interface Weighed {
  readonly id: string;
  readonly matchedBlocks: number;
  /** Requests that it has, ours and others', as far as they are known. */
  readonly load: number;
}

/**
 * @param random in [0, 1)
 * @returns null only without candidates
 */
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

/** The loads of candidates, and whether others send requests to them as well. */
function weigh(candidates: readonly RouteCandidate[]): { weighed: readonly Weighed[]; shared: boolean } {
  const foreign = candidates.map(({ load }) => (load === null ? null : foreignOf(load)));
  const known = foreign.filter((count) => count !== null);
  const total = known.reduce((sum, count) => sum + count, 0);
  // A replica without a report is not an empty one: it has what the others have.
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
 * What others had there when the report was taken: reported + (leases − leasesThen), ours beside it, is
 * leases + (reported − leasesThen). Below zero it only says that ours were on their way.
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

/** Any of those that cost the least. */
function cheapest(items: readonly Weighed[], random: () => number, costOf: (item: Weighed) => number): Weighed | null {
  const costs = items.map((item) => costOf(item));
  const lowest = Math.min(...costs);
  return draw(
    items.filter((_, at) => costs[at] === lowest),
    random,
  );
}

/**
 * Rendezvous hashing (Thaler and Ravishankar, 1998): each key has an order of the replicas of its own, the same at every
 * gateway, of which only the places of those that come or go change.
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

/** FNV-1a with MurmurHash3's finish, without which the last characters hardly reach the high bits. */
function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
