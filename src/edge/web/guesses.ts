import { createHash } from 'node:crypto';
import type { Clock } from '#base/clock.ts';

/**
 * Whoever sends an operator's key to an application is told so, and could find keys out by that. So words that may be
 * such keys are counted by address. Those that were seen before are not: what visitors send again and again, such as
 * their cookies and the names of files, finds nothing out.
 */
export interface Guesses {
  /** @returns whether an address has sent more new words in this minute than anybody needs */
  areTooMany(address: string, words: Iterable<string>): boolean;
}

/** Pages with many files of long names have a few hundred when they are first seen. */
export const newWordsPerMinute = 2000;
const minuteMs = 60_000;
const rememberedMax = 100_000;
const addressesMax = 10_000;

export function createGuesses(clock: Pick<Clock, 'monotonicMs'>): Guesses {
  const seen = new Set<string>();
  const counts = new Map<string, number>();
  let untilMs = 0;

  return {
    areTooMany(address, words) {
      const nowMs = clock.monotonicMs();
      if (nowMs >= untilMs || counts.size >= addressesMax) counts.clear();
      if (nowMs >= untilMs) untilMs = nowMs + minuteMs;
      let count = counts.get(address) ?? 0;
      for (const word of words) {
        const name = createHash('sha256').update(word).digest('base64');
        if (seen.has(name)) continue;
        // It is not remembered: nobody has told whether it is a key.
        if (count >= newWordsPerMinute) return true;
        if (seen.size >= rememberedMax) seen.clear();
        seen.add(name);
        counts.set(address, (count += 1));
      }
      return false;
    },
  };
}
