import { Socket } from 'node:net';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { createLog } from '#base/log.ts';
import { connectRedis, redisScript, type RedisStore } from '#base/redis/redis.ts';
import { findRedisServer, startServer } from '#test/redis.ts';
import { pin } from './processes.ts';
import { median } from './statistics.ts';

/**
 * `npm run bench:redis`: CPU time of this process, user and system, for scripts that many callers ask a Redis on another
 * core to run: as src/base/redis/connect-redis.ts sends them, the same without its cork, and through ioredis with its own automatic
 * pipelining. Rounds alternate in one run; the figures are medians, the ratios those of the rounds.
 */

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    calls: { type: 'string', default: '20000' },
    callers: { type: 'string', default: '32' },
  },
});
const rounds = Number(values.rounds);
const calls = Number(values.calls);
const callers = Number(values.callers);

const lua = "return { 'ok', ARGV[1], redis.call('HINCRBY', KEYS[1], ARGV[2], 1) }";
const script = redisScript(lua);
const organization = '{0196f5b2-93a1-7c1e-8a44-7f7b9f0a1c11}';
/** As an admission has them. */
const keys = ['wallet', 'holds', 'money', 'leases', 'use', 'slots'].map((name) => `hg:bench:${organization}:${name}`);
const lines = Array.from({ length: 16 }, (_, at) => `line ${at} of the arguments`).join('\n');

type Run = () => Promise<unknown>;

function withoutCork(run: () => Promise<number>): Promise<number> {
  const nothing = (): void => undefined;
  // Over those that sockets inherit.
  const own = { cork: nothing, uncork: nothing };
  Object.assign(Socket.prototype, own);
  return run().finally(() => {
    for (const name of Object.keys(own)) Reflect.deleteProperty(Socket.prototype, name);
  });
}

/** Microseconds of CPU per call. */
async function measure(run: Run): Promise<number> {
  const times = Math.ceil(calls / callers);
  const caller = async (): Promise<void> => {
    for (let time = 0; time < times; time += 1) await run();
  };
  const before = process.cpuUsage();
  await Promise.all(Array.from({ length: callers }, caller));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (times * callers);
}

async function compare(store: RedisStore, client: Redis): Promise<void> {
  const corked: Run = () => store.run(script, keys, [lines, 'field']);
  const library: Run = () => client.evalsha(script.sha, keys.length, ...keys, lines, 'field');
  const variants: readonly (readonly [string, () => Promise<number>])[] = [
    ['corked', () => measure(corked)],
    ['each call alone', () => withoutCork(() => measure(corked))],
    ['ioredis', () => measure(library)],
  ];
  const found = variants.map(() => [] as number[]);
  for (let round = -1; round < rounds; round += 1) {
    for (const [at, [, run]] of variants.entries()) {
      const micros = await run();
      // Once over all of them first, so that nobody is measured while his code is compiled.
      if (round >= 0) found[at]?.push(micros);
    }
  }
  for (const [at, [name]] of variants.entries()) {
    const micros = found[at] ?? [];
    const ratio = median(micros.map((value, round) => value / (found[0]?.[round] ?? Number.NaN)));
    console.log(
      `${name.padEnd(20)}${median(micros).toFixed(1).padStart(8)} µs per call${ratio.toFixed(2).padStart(8)}×`,
    );
  }
}

const program = findRedisServer();
if (program === null) throw new Error('there is no Redis server on PATH');
const redis = await startServer(program);
pin(process.pid, 1);
if (redis.pid !== null) pin(redis.pid, 0);
const store = await connectRedis(redis.url, createLog('warn'));
const client = new Redis(redis.url, { enableAutoPipelining: true });
try {
  await client.script('LOAD', lua);
  await compare(store, client);
} finally {
  client.disconnect();
  store.close();
  await redis.stop();
}
