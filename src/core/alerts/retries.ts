/** When something that did not arrive is sent again. */

const firstWaitMs = 5000;
const growth = 4;
const waitMsMax = 6 * 3_600_000;
const jitter = 0.2;

/** Tries of one delivery: about a day lies between the first and the last. */
export const triesMax = 11;

/**
 * Milliseconds from a try that failed to the next one: 5 s, 20 s, 80 s, … up to 6 hours, a fifth more or less.
 * @param tries made so far; @param random from 0 up to 1
 * @returns null where that was the last
 */
export function waitAfter(tries: number, random = Math.random()): number | null {
  if (tries >= triesMax) return null;
  const wait = Math.min(waitMsMax, firstWaitMs * growth ** (tries - 1));
  return Math.round(wait * (1 - jitter + 2 * jitter * random));
}
