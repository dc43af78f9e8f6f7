import { setTimeout as sleep } from 'node:timers/promises';
import { ConfigError } from '#base/config-error.ts';
import { describeConnectionFailure } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { RedisAwayError } from '#base/redis/redis.ts';

/** Settings for a start that waits for unavailable stores; `waitMs` is the longest wait. */
export interface Patience {
  readonly waitMs: number;
  readonly log: Log;
  readonly stopRequested: AbortSignal;
}

const pauseMs = 2000;

/** True if a start failed only because PostgreSQL or Redis is unavailable, so that another start may succeed. */
export function isStoreUnavailable(error: unknown): boolean {
  const cause = error instanceof ConfigError ? error.cause : error;
  return cause instanceof RedisAwayError || describeConnectionFailure(cause) !== null;
}

/** Returns the reason why a store cannot be used, as one sentence. */
export function storeUnavailableReason(error: unknown): string {
  const cause = error instanceof ConfigError ? error.cause : error;
  if (error instanceof ConfigError) return error.message;
  if (cause instanceof RedisAwayError) return `REDIS_URL: Redis cannot be used (${cause.message}).`;
  return `The database cannot be used (${describeConnectionFailure(cause) ?? 'it is unavailable'}).`;
}

/** SQLSTATE classes and codes that a retry does not fix: failed login, unknown database, missing privilege. */
const refusesUs = /^(28|3D|42501)/;

function isRefused(error: unknown): boolean {
  for (let link = error; link instanceof Error; link = link.cause) {
    if ('code' in link && typeof link.code === 'string' && refusesUs.test(link.code)) return true;
  }
  return false;
}

/**
 * Retries an attempt every two seconds while a store is unavailable. Logs the reason when the wait begins, and whenever
 * the reason changes.
 * @param attempt must release everything when it fails
 * @throws the error of `attempt`, if waiting does not fix it or the time is over; the signal's reason when a stop is
 *   requested meanwhile
 */
export async function withPatience<T>({ waitMs, log, stopRequested }: Patience, attempt: () => Promise<T>): Promise<T> {
  const untilMs = performance.now() + waitMs;
  let lastReason = '';
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (stopRequested.aborted || !isStoreUnavailable(error) || isRefused(error)) throw error;
      if (performance.now() + pauseMs > untilMs) throw error;
      const reason = storeUnavailableReason(error);
      if (reason !== lastReason) {
        const leftSeconds = Math.round((untilMs - performance.now()) / 1000);
        log.warn({ pauseMs, leftSeconds }, `the start waits: ${reason}`);
      }
      lastReason = reason;
    }
    await sleep(pauseMs, undefined, { signal: stopRequested }).catch(() => stopRequested.throwIfAborted());
  }
}
