import { createHash } from 'node:crypto';
import type { Clock } from '#base/clock.ts';

/**
 * Counts new words by address, to prevent guessing: the rejection of a request with an imported key reveals to its
 * sender that the key is valid. Only words that may be imported keys are counted. Words seen before are not counted,
 * because repeated cookies and file names reveal nothing.
 */
export interface Guesses {
  /** @returns true if an address has sent more new words in this minute than anybody needs */
  areTooMany(address: string, words: Iterable<string>): boolean;
}

/** New words per minute for one address. The first visit of a page with many files of long names has a few hundred. */
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
        // Not remembered: the rejection does not reveal whether this word is a key.
        if (count >= newWordsPerMinute) return true;
        if (seen.size >= rememberedMax) seen.clear();
        seen.add(name);
        counts.set(address, (count += 1));
      }
      return false;
    },
  };
}
