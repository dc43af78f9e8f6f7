export {
  answerTimeoutMs,
  connectRedis,
  type Patience,
  RedisAwayError,
  type RedisScript,
  redisScript,
  type RedisStore,
  shortTimeoutMs,
} from './connect-redis.ts';
export { createThrottle, type Throttle, type ThrottleCount, type ThrottleOptions } from './throttle.ts';
