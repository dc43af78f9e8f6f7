import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { redisScript, type RedisStore } from './store.ts';

/**
 * Counts events by name in fixed windows; a window begins with its first event. With Redis all gateways count together;
 * while Redis is unavailable each counts for itself. Neither money nor the limits of keys depend on it.
 */
export interface Throttle {
  /** Counts one event. */
  hit(name: string): Promise<ThrottleCount>;
  /** Takes back one counted event. */
  giveBack(name: string): Promise<void>;
}

export interface ThrottleCount {
  /** True if the limit was not reached before. */
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Milliseconds until the window ends. */
  readonly resetMs: number;
}

export interface ThrottleOptions {
  /** Kind of event; names of different kinds are counted apart. */
  readonly kind: string;
  readonly limit: number;
  readonly windowSeconds: number;
  /** Null counts in this process's memory. */
  readonly store: Pick<RedisStore, 'run'> | null;
  /** Prefix of names in the store. */
  readonly prefix: string;
}

/** Counts and answers with the time left, in one step; the key goes away with its window. */
const countScript = redisScript(`redis.call('SET', KEYS[1], 0, 'EX', ARGV[2], 'NX')
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
return {count, redis.call('PTTL', KEYS[1])}`);

export function createThrottle({ kind, limit, windowSeconds, store, prefix }: ThrottleOptions): Throttle {
  const own = { keyPrefix: `${prefix}throttle:${kind}`, points: limit, duration: windowSeconds };
  const memory = new RateLimiterMemory(own);
  const storeClient = store === null ? null : clientOf(store);
  const limiter =
    storeClient === null ? memory : new RateLimiterRedis({ ...own, storeClient, insuranceLimiter: memory });
  return {
    async hit(name) {
      try {
        return countOf(await limiter.consume(name), limit, true);
      } catch (refused) {
        if (refused instanceof RateLimiterRes) return countOf(refused, limit, false);
        throw refused;
      }
    },
    async giveBack(name) {
      await limiter.reward(name);
    },
  };
}

/** The one command that the limiter sends, in the form in which it calls clients of ioredis. */
function clientOf(store: Pick<RedisStore, 'run'>) {
  return { rlflxIncr: ([key = '', ...args]: readonly string[]) => store.run(countScript, [key], args) };
}

function countOf(result: RateLimiterRes, limit: number, allowed: boolean): ThrottleCount {
  const resetMs = Math.max(0, result.msBeforeNext);
  return { allowed, limit, remaining: Math.max(0, result.remainingPoints), resetMs };
}
