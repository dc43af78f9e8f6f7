/**
 * Remembers which replica has read which prompts, and so probably has them in its prefix cache. An engine that needs
 * room evicts the least recently used blocks, the ends of prompts before their beginnings; so does this index. Entries
 * do not expire by time: an idle engine keeps its cache for days.
 *
 * One index serves all organizations, like the cache that it mirrors. A salt separates organizations in the cache; here
 * the salt is part of the chain, through its scope and a request's own `cache_salt`. An answer never shows which
 * replica gave it.
 */
export class PrefixIndex {
  readonly #blocksMax: number;
  /** Blocks per replica, least recently used first. A block is always after the blocks that follow it in a prompt. */
  readonly #replicas = new Map<string, Set<number>>();

  /** @param blocksMax maximum number of blocks remembered per replica */
  constructor(blocksMax: number) {
    this.#blocksMax = blocksMax;
  }

  /** Returns how many of a chain's blocks, from the first on, the replica has read. */
  match(replicaId: string, chain: Int32Array): number {
    const blocks = this.#replicas.get(replicaId);
    if (blocks === undefined) return 0;
    // If a block is known, all blocks before it are known: binary search finds the last known one.
    let known = 0;
    let unknown = chain.length + 1;
    while (unknown - known > 1) {
      const middle = (known + unknown) >>> 1;
      if (blocks.has(chain[middle - 1] ?? 0)) known = middle;
      else unknown = middle;
    }
    return known;
  }

  /** Records that the replica is about to read this prompt. */
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

  /** Forgets a replica whose cache no longer exists. */
  forget(replicaId: string): void {
    this.#replicas.delete(replicaId);
  }
}
