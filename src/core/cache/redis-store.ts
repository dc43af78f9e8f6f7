import type { Log } from '#base/log.ts';
import { RedisAwayError, redisScript, type RedisStore } from '#base/redis/redis.ts';
import type { CacheBounds, CacheEntryRef, CacheStore } from './store.ts';

export interface RedisCacheOptions extends CacheBounds {
  readonly store: RedisStore;
  /** Prefix of all names in Redis. */
  readonly prefix: string;
  readonly log: Log;
}

/**
 * Stores an answer and evicts the oldest answers of its organization, whose keys are in one slot of a Redis cluster.
 * KEYS: the answer, the organization's keys by time, their sizes with the sum under ''.
 * ARGV: the answer, its key, age in milliseconds, maximum bytes of all answers, prefix of the answers' names.
 */
const keepScript = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local age, max = tonumber(ARGV[3]), tonumber(ARGV[4])
local sum = tonumber(redis.call('HGET', KEYS[3], '') or '0')
local old = redis.call('HGET', KEYS[3], ARGV[2])
if old then sum = sum - tonumber(old) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', age)
redis.call('ZADD', KEYS[2], now, ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], #ARGV[1])
sum = sum + #ARGV[1]
while true do
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if #first == 0 or (sum <= max and tonumber(first[2]) > now - age) then break end
  sum = sum - tonumber(redis.call('HGET', KEYS[3], first[1]) or '0')
  redis.call('DEL', ARGV[5] .. first[1])
  redis.call('ZREM', KEYS[2], first[1])
  redis.call('HDEL', KEYS[3], first[1])
end
redis.call('HSET', KEYS[3], '', sum)
redis.call('PEXPIRE', KEYS[2], age)
redis.call('PEXPIRE', KEYS[3], age)
return { sum }
`);

/**
 * Creates a store in Redis, for all gateways that share it. The bytes are limited per organization, and the oldest
 * answer is evicted first. While Redis is unavailable nothing is found and nothing is stored.
 */
export function createRedisStore({ store, prefix, log, bytesMax, ageMaxMs }: RedisCacheOptions): CacheStore {
  const names = (organizationId: string): string => `${prefix}:{${organizationId}}:cache:`;

  function noteFailure(error: unknown): void {
    if (!(error instanceof RedisAwayError))
      log.warn({ err: error }, 'the response cache in Redis failed; the request continues without it');
  }

  return {
    async get({ organizationId, key }) {
      try {
        const answer = await store.command('GET', names(organizationId) + key);
        return typeof answer === 'string' ? Buffer.from(answer, 'utf8') : null;
      } catch (error) {
        noteFailure(error);
        return null;
      }
    },
    async set({ organizationId, key }: CacheEntryRef, answer: Buffer) {
      if (answer.length > bytesMax) return;
      const begin = names(organizationId);
      const keys = [begin + key, `${prefix}:{${organizationId}}:cached`, `${prefix}:{${organizationId}}:cache-sizes`];
      const args = [answer.toString('utf8'), key, String(ageMaxMs), String(bytesMax), begin];
      try {
        await store.run(keepScript, keys, args);
      } catch (error) {
        noteFailure(error);
      }
    },
  };
}
