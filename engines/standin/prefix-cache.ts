import { hashText, type PromptScan } from './tokenizer.ts';

/** Tokens of a prompt that were cached before, and those whose blocks it added. */
export interface CacheUse {
  cachedTokens: number;
  createdTokens: number;
}

/** A block's hash with the salt in its lower half: blocks of different salts are never the same. */
function salted(block: number, salt: number): number {
  const low = block % 0x1_0000_0000;
  return block - low + ((low ^ salt) >>> 0);
}

/**
 * Remembers which blocks of prompts were computed, as vLLM's prefix cache does: whole blocks from the start only, and
 * never a prompt's last token, which must be computed to have something to continue from. The oldest blocks go first.
 * What was computed for requests with one `cache_salt` is not found for those with another, or without.
 */
export function createPrefixCache(options: { blockSize: number; blocksMax: number }): {
  use: (prompt: PromptScan, salt: string | null) => CacheUse;
  reset: () => void;
} {
  const known = new Set<number>();
  return {
    use(prompt, salt) {
      const usable = Math.floor((prompt.count - 1) / options.blockSize);
      const saltHash = salt === null ? 0 : hashText(salt);
      const blocks = salt === null ? prompt.blocks : prompt.blocks.map((block) => salted(block, saltHash));
      let hits = 0;
      while (hits < blocks.length && known.has(blocks[hits] ?? 0)) hits += 1;
      let created = 0;
      for (const block of blocks) {
        if (known.has(block)) continue;
        created += 1;
        known.add(block);
        if (known.size > options.blocksMax) known.delete(known.values().next().value ?? 0);
      }
      return {
        cachedTokens: Math.min(hits, usable) * options.blockSize,
        createdTokens: created * options.blockSize,
      };
    },
    reset: () => known.clear(),
  };
}
