import { hashText, type RouteChoice } from './choose-replica.ts';

/**
 * Chooses among deployments whose operator gave them different weights: each gets its share of the requests. Neither
 * load nor cached prompts change the shares, because they would keep requests at the deployment that had them first.
 */

export interface WeightedReplica {
  readonly id: string;
  /** More than 0. */
  readonly weight: number;
}

export function differInWeight(replicas: readonly WeightedReplica[]): boolean {
  return replicas.some(({ weight }) => weight !== replicas[0]?.weight);
}

/**
 * @param stickyKey key of requests that the client wants on the same replica; null if the client sent none
 * @param random returns numbers in [0, 1)
 * @returns null only without replicas
 */
export function chooseByWeight(
  replicas: readonly WeightedReplica[],
  stickyKey: string | null,
  random: () => number,
): RouteChoice | null {
  const drawn = stickyKey === null ? draw(replicas, random) : stickiest(replicas, stickyKey);
  return drawn === null ? null : { id: drawn.id, reason: stickyKey === null ? 'weight' : 'sticky' };
}

function draw(replicas: readonly WeightedReplica[], random: () => number): WeightedReplica | null {
  let left = random() * replicas.reduce((sum, { weight }) => sum + weight, 0);
  for (const one of replicas) {
    left -= one.weight;
    if (left < 0) return one;
  }
  // Sums of fractions are rounded.
  return replicas.at(-1) ?? null;
}

/**
 * Chooses by weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each replica gets its share of the keys,
 * and each gateway chooses the same replica for a key.
 */
function stickiest(replicas: readonly WeightedReplica[], key: string): WeightedReplica | null {
  let best: WeightedReplica | null = null;
  let bestScore = -1;
  for (const one of replicas) {
    // Strictly between 0 and 1, so that the logarithm is finite and not 0.
    const uniform = (hashText(`${key}\n${one.id}`) + 0.5) / 2 ** 32;
    const score = -one.weight / Math.log(uniform);
    if (score > bestScore) {
      best = one;
      bestScore = score;
    }
  }
  return best;
}
