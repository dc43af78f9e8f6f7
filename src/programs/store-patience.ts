import { setTimeout as sleep } from 'node:timers/promises';
import { ConfigError } from '#base/config.ts';
import { whyUnusable } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { RedisAwayError } from '#base/redis.ts';

/** How long a start waits for stores that are not there yet. */
export interface Patience {
  readonly waitMs: number;
  readonly log: Log;
  readonly stopRequested: AbortSignal;
}

const pauseMs = 2000;

/** True if a start failed only because PostgreSQL or Redis is unavailable, so that another start may succeed. */
export function isStoreAway(error: unknown): boolean {
  const cause = error instanceof ConfigError ? error.cause : error;
  return cause instanceof RedisAwayError || whyUnusable(cause) !== null;
}

/** Why a store cannot be used, as one sentence. */
export function storeAwayReason(error: unknown): string {
  const cause = error instanceof ConfigError ? error.cause : error;
  if (error instanceof ConfigError) return error.message;
  if (cause instanceof RedisAwayError) return `REDIS_URL: Redis cannot be used (${cause.message}).`;
  return `The database cannot be used (${whyUnusable(cause) ?? 'it is away'}).`;
}

/** Classes of SQLSTATE that another try does not mend: who we are, no such database, a missing right. */
const refusesUs = /^(28|3D|42501)/;

function isRefused(error: unknown): boolean {
  for (let link = error; link instanceof Error; link = link.cause) {
    if ('code' in link && typeof link.code === 'string' && refusesUs.test(link.code)) return true;
  }
  return false;
}

/**
 * Tries again, every two seconds, what fails because a store is away. It says why when it begins to wait, and whenever
 * the reason is another one.
 * @param attempt leaves nothing behind when it fails
 * @throws what `attempt` throws, when it is nothing that waiting mends or the time is over; the signal's reason when a
 *   stop is requested meanwhile
 */
export async function withPatience<T>({ waitMs, log, stopRequested }: Patience, attempt: () => Promise<T>): Promise<T> {
  const untilMs = performance.now() + waitMs;
  let said = '';
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (stopRequested.aborted || !isStoreAway(error) || isRefused(error)) throw error;
      if (performance.now() + pauseMs > untilMs) throw error;
      const reason = storeAwayReason(error);
      if (reason !== said) {
        const leftSeconds = Math.round((untilMs - performance.now()) / 1000);
        log.warn({ pauseMs, leftSeconds }, `the start waits: ${reason}`);
      }
      said = reason;
    }
    await sleep(pauseMs, undefined, { signal: stopRequested }).catch(() => stopRequested.throwIfAborted());
  }
}
