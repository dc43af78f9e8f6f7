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
 * Affinity. A replica that has a prompt's beginning cached, or that a key of the client's stays with, is taken while its
 * load is at most `loadBound` times the average, as in "Consistent Hashing with Bounded Loads" (Mirrokni, Thorup and
 * Zadimoghaddam, 2018); else the next best.
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
  /** Blocks of the prompt that were looked up. */
  readonly blocks: number;
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
  readonly candidate: RouteCandidate;
  /** Requests that it has, ours and others', as far as can be told. */
  readonly load: number;
}

/**
 * @param candidates at least one
 * @param random in [0, 1)
 */
export function choose(
  candidates: readonly RouteCandidate[],
  request: RouteRequest,
  random: () => number,
): RouteChoice | null {
  const { weighed, shared } = weigh(candidates);
  const average = weighed.reduce((sum, { load }) => sum + load, 0) / weighed.length;
  const open = weighed.filter(({ load }) => load <= loadBound * (average + 1));
  const deepest = Math.max(0, ...open.map(({ candidate }) => candidate.matchedBlocks));
  const holders = open.filter(({ candidate }) => candidate.matchedBlocks === deepest);
  if (deepest > 0 && deepest >= request.blocks * deepShare) return chosen(least(holders, false, random), 'prefix');
  if (request.stickyKey !== null) return chosen(stickiest(open, request.stickyKey), 'sticky');
  if (deepest > 0) return chosen(least(holders, false, random), 'prefix');
  return chosen(least(open, shared, random), 'load');
}

function chosen(found: Weighed | null, reason: RouteReason): RouteChoice | null {
  return found === null ? null : { id: found.candidate.id, reason };
}

/** The loads of candidates, and whether others send requests to them as well. */
function weigh(candidates: readonly RouteCandidate[]): { weighed: readonly Weighed[]; shared: boolean } {
  const foreign = candidates.map(({ load }) => (load === null ? null : foreignOf(load)));
  const known = foreign.filter((count) => count !== null);
  const total = known.reduce((sum, count) => sum + count, 0);
  // A replica without a report is not an empty one: it has what the others have.
  const assumed = known.length === 0 ? 0 : total / known.length;
  const own = candidates.reduce((sum, { leases }) => sum + leases, 0);
  const weighed = candidates.map((candidate, at) => ({
    candidate,
    load: candidate.leases + (foreign[at] ?? assumed),
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

function draw(weighed: readonly Weighed[], random: () => number): Weighed | null {
  return weighed[Math.floor(random() * weighed.length)] ?? null;
}

/** The least loaded, any of those that are equal; or the better of two. */
function least(weighed: readonly Weighed[], ofTwo: boolean, random: () => number): Weighed | null {
  if (ofTwo && weighed.length > 2) {
    const first = draw(weighed, random);
    const second = draw(
      weighed.filter((other) => other !== first),
      random,
    );
    return first !== null && second !== null && second.load < first.load ? second : first;
  }
  const lowest = Math.min(...weighed.map(({ load }) => load));
  return draw(
    weighed.filter(({ load }) => load === lowest),
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
    const score = hashText(`${key}\n${one.candidate.id}`);
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
