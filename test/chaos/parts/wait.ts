import { setTimeout as sleep } from 'node:timers/promises';

export { sleep };

/**
 * Reads until there is a value that is neither null nor false.
 * @returns null when there is none within `timeoutMs`
 */
export async function within<T>(
  timeoutMs: number,
  read: () => Promise<T | null | false> | T | null | false,
): Promise<T | null> {
  const untilMs = performance.now() + timeoutMs;
  for (;;) {
    const value = await read();
    if (value !== null && value !== false) return value;
    if (performance.now() > untilMs) return null;
    await sleep(25);
  }
}

/** The value of a promise, or null when it does not settle in time. */
export async function inTime<T>(timeoutMs: number, coming: Promise<T>): Promise<T | null> {
  const over = new AbortController();
  try {
    return await Promise.race([coming, sleep(timeoutMs, null, { signal: over.signal, ref: false })]);
  } finally {
    over.abort();
    coming.catch(() => undefined);
  }
}

export const secondsSince = (ms: number): number => (performance.now() - ms) / 1000;
