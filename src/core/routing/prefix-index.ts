/**
 * Which replica has read which prompts: what it has is likely in its prefix cache still. An engine drops what was not
 * used for the longest time when it needs the room, the ends of prompts before their beginnings, and so does this; a
 * clock says nothing about it, an idle engine keeps its cache for days.
 *
 * One for all organizations, as the cache that it mirrors is: what keeps them apart there, a salt, is a part of the
 * chain here, by its scope and by a request's own `cache_salt`. An answer never says which replica gave it.
 */
export class PrefixIndex {
  readonly #blocksMax: number;
  /** Least recently used first. A block always stands behind those that follow it in a prompt. */
  readonly #replicas = new Map<string, Set<number>>();

  /** @param blocksMax that are remembered of each replica */
  constructor(blocksMax: number) {
    this.#blocksMax = blocksMax;
  }

  /** How many of a chain's blocks, from its first one, the replica has read. */
  match(replicaId: string, chain: Int32Array): number {
    const blocks = this.#replicas.get(replicaId);
    if (blocks === undefined) return 0;
    // A block that is known has its whole beginning known: the end of that is searched for by halves.
    let known = 0;
    let unknown = chain.length + 1;
    while (unknown - known > 1) {
      const middle = (known + unknown) >>> 1;
      if (blocks.has(chain[middle - 1] ?? 0)) known = middle;
      else unknown = middle;
    }
    return known;
  }

  /** The replica is about to read this prompt. */
  record(replicaId: string, chain: Int32Array): void {
    const blocks = this.#replicas.get(replicaId) ?? new Set<number>();
    this.#replicas.set(replicaId, blocks);
    for (let at = chain.length - 1; at >= 0; at -= 1) {
      const block = chain[at] ?? 0;
      blocks.delete(block);
      blocks.add(block);
    }
    for (const oldest of blocks) {
      if (blocks.size <= this.#blocksMax) break;
      blocks.delete(oldest);
    }
  }

  /** Its cache is gone. */
  forget(replicaId: string): void {
    this.#replicas.delete(replicaId);
  }
}
