import type { PromptScan } from './tokenizer.ts';

/** Tokens of a prompt that were cached before, and those whose blocks it added. */
export interface CacheUse {
  cachedTokens: number;
  createdTokens: number;
}

/**
 * Remembers which blocks of prompts were computed, as vLLM's prefix cache does: whole blocks from the start only, and
 * never a prompt's last token, which must be computed to have something to continue from. The oldest blocks go first.
 */
export function createPrefixCache(options: { blockSize: number; blocksMax: number }): {
  use: (prompt: PromptScan) => CacheUse;
  reset: () => void;
} {
  const known = new Set<number>();
  return {
    use(prompt) {
      const usable = Math.floor((prompt.count - 1) / options.blockSize);
      let hits = 0;
      while (hits < prompt.blocks.length && known.has(prompt.blocks[hits] ?? 0)) hits += 1;
      let created = 0;
      for (const block of prompt.blocks) {
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
