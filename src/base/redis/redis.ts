import type { Log } from '#base/log.ts';
import type { RedisStore } from './store.ts';

export { type RedisReply, type RedisScript, redisScript, type RedisStore } from './store.ts';
export { createThrottle, type Throttle, type ThrottleCount, type ThrottleOptions } from './throttle.ts';
export { answerTimeoutMs, type Patience, RedisAwayError, shortTimeoutMs } from './watch.ts';

/**
 * Connects to Redis. The client is loaded only then: loading it takes a twelfth of a gateway's start.
 * @throws RedisAwayError when Redis cannot be reached
 */
export async function connectRedis(url: string, log: Log): Promise<RedisStore> {
  const client = await import('./connect-redis.ts');
  return client.connectRedis(url, log);
}
