/** Times of retries. */

const firstWaitMs = 5000;
const growth = 4;
const waitMsMax = 6 * 3_600_000;
const jitter = 0.2;

/** Most attempts of one delivery: about a day passes between the first and the last. */
export const triesMax = 11;

/**
 * Returns the milliseconds from a failed attempt to the next: 5 s, 20 s, 80 s, … up to 6 hours, plus or minus a fifth.
 * @param tries attempts made so far; @param random from 0 up to 1
 * @returns null after the last attempt
 */
export function waitAfter(tries: number, random = Math.random()): number | null {
  if (tries >= triesMax) return null;
  const wait = Math.min(waitMsMax, firstWaitMs * growth ** (tries - 1));
  return Math.round(wait * (1 - jitter + 2 * jitter * random));
}
