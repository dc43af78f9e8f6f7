import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis.ts';
import { createMemoryAdmission, createRedisAdmission } from '#core/admission/admission.ts';
import type { Admission, KeyRef } from '#core/admission/contract.ts';
import { findRedisServer, startServer } from '../support/redis.ts';
import { pin } from './processes.ts';
import { median } from './statistics.ts';

/**
 * `node test/bench/admission.ts`: CPU time of this process, user and system, for an admission with its settlement, in
 * memory and with a Redis on another core. Each of `--connections` callers has one request at a time, which is settled
 * after `--hold` milliseconds together with whatever else is waiting then, as the books make requests durable in
 * groups. Rounds of both stores alternate.
 */

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '20000' },
    connections: { type: 'string', default: '16' },
    hold: { type: 'string', default: '0' },
    rounds: { type: 'string', default: '5' },
  },
});
const requests = Number(values.requests);
const connections = Number(values.connections);
const holdMs = Number(values.hold);

const key: KeyRef = {
  organizationId: randomUUID(),
  keyId: randomUUID(),
  limits: { requestsPerMinute: 10_000_000, maxConcurrency: 10_000, tokensPerMinute: null, monthlyTokenLimit: null },
};
const balancePicoUsd = 10n ** 18n;
const log = createLog('warn');

function inMemory(): Admission {
  return createMemoryAdmission({
    loadBalance: () => Promise.resolve(balancePicoUsd),
    loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
    onCredit: () => undefined,
    clock: systemClock,
  });
}

function inRedis(store: RedisStore): Admission {
  return createRedisAdmission({
    store,
    prefix: 'hg:bench',
    gatewayId: randomUUID(),
    leaseMs: 30_000,
    books: {
      balanceWith: () => Promise.resolve({ balancePicoUsd, charged: [] }),
      tokensWith: () => Promise.resolve({ tokens: 0, counted: [] }),
      isRevoked: () => Promise.resolve(false),
    },
    collect: () => Promise.resolve([]),
    findSettled: () => Promise.resolve(new Map()),
    liveGateways: () => Promise.resolve(new Set<string>()),
    clock: systemClock,
    log,
  });
}

let commit: Promise<void> | null = null;

/** Resolves for all that wait at once. */
function committed(): Promise<void> {
  commit ??= new Promise((resolve) => {
    const end = (): void => {
      commit = null;
      resolve();
    };
    if (holdMs > 0) setTimeout(end, holdMs);
    else setImmediate(end);
  });
  return commit;
}

/** One request after the other. @throws Error when one is refused */
async function call(admission: Admission, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    const requestId = randomUUID();
    const amounts = { neededMicroUsd: 1n, wantedMicroUsd: 450n, estimatedTokens: 564 };
    const result = await admission.admit({ ...key, requestId, ...amounts });
    if (!result.ok) throw new Error(`an admission was refused: ${result.code}`);
    await committed();
    admission.settle(requestId, { chargedPicoUsd: 123_400_000n, tokens: 512 });
  }
}

/** Microseconds of CPU per request, settlements included. */
async function measure(admission: Admission): Promise<number> {
  const before = process.cpuUsage();
  const times = Math.ceil(requests / connections);
  await Promise.all(Array.from({ length: connections }, () => call(admission, times)));
  while ((await admission.heldMicroUsd(key.organizationId)) > 0n)
    await new Promise((resolve) => setTimeout(resolve, 1));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (times * connections);
}

async function main(): Promise<void> {
  const program = findRedisServer();
  if (program === null) throw new Error('there is no Redis server on PATH');
  const redis = await startServer(program);
  pin(process.pid, 1);
  if (redis.pid !== null) pin(redis.pid, 0);
  const store = await connectRedis(redis.url, log);
  try {
    const memoryAdmission = inMemory();
    const redisAdmission = inRedis(store);
    // Once over both, so that nobody is measured while his code is compiled.
    await measure(memoryAdmission);
    await measure(redisAdmission);
    const found = { memory: [] as number[], redis: [] as number[] };
    for (let round = 0; round < Number(values.rounds); round += 1) {
      found.memory.push(await measure(memoryAdmission));
      found.redis.push(await measure(redisAdmission));
    }
    const [memory, shared] = [median(found.memory), median(found.redis)];
    console.log(`µs per request: memory ${memory.toFixed(1)}, redis ${shared.toFixed(1)}`);
  } finally {
    store.close();
    await redis.stop();
  }
}

await main();
