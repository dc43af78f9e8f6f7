import { randomUUID } from 'node:crypto';
import { Socket } from 'node:net';
import { parseArgs } from 'node:util';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import { createMemoryAdmission, createRedisAdmission } from '#core/admission/admission.ts';
import type { Admission, HardBudget, KeyRef, ProjectLimit } from '#core/admission/contract/types.ts';
import { findRedisServer, startServer } from '#test/redis.ts';
import { pin } from './processes.ts';
import { median } from './statistics.ts';

/**
 * `node test/bench/admission.ts`: CPU time of this process, user and system, for an admission with its settlement, in
 * memory and with a Redis on another core. Each of `--connections` callers, who share `--keys` keys, has one request at
 * a time, which is settled after `--hold` milliseconds together with whatever else is waiting then, as the books make
 * requests durable in groups; `--budgets 2` holds each against so many budgets, `--limits` under limits of its project. The third figure is with a Redis that
 * gets each command in a write of its own. Rounds of all three alternate.
 *
 * With `--silences 20`, instead: Redis is stopped that often in the middle of a second, and the report has the time that
 * the first decision took which was asked for right after it, and the next ones, in milliseconds.
 */

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '20000' },
    connections: { type: 'string', default: '16' },
    keys: { type: 'string', default: '1' },
    hold: { type: 'string', default: '0' },
    budgets: { type: 'string', default: '0' },
    limits: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '5' },
    silences: { type: 'string', default: '0' },
  },
});
const requests = Number(values.requests);
const connections = Number(values.connections);
const holdMs = Number(values.hold);

const limits = {
  requestsPerMinute: 10_000_000,
  maxConcurrency: 10_000,
  tokensPerMinute: null,
  monthlyTokenLimit: null,
};
/** Each of an organization of its own. */
const keys: readonly KeyRef[] = Array.from({ length: Number(values.keys) }, () => {
  return { organizationId: randomUUID(), keyId: randomUUID(), limits };
});
const balancePicoUsd = 10n ** 18n;
/** The same for every key: names of slots are an organization's own. */
const some: readonly HardBudget[] = Array.from({ length: Number(values.budgets) }, (_, at) => ({
  budgetId: `budget ${at}`,
  slot: `slot_${at}`,
  spending: { type: 'api_key', id: `key ${at}`, period: 'daily', fromMs: 0, toMs: 86_400_000 },
  amountMicroUsd: 10n ** 12n,
  allowedPicoUsd: 10n ** 18n,
  forgivenPicoUsd: 0n,
}));
const budgets = { of: () => some };
const ofProject: ProjectLimit = {
  slot: 'slot',
  projectId: 'project',
  model: 'model',
  limits: { requestsPerMinute: 10_000_000, tokensPerMinute: 10 ** 12, requestsPerDay: 10_000_000 },
};
const projectLimits = { of: () => (values.limits ? ofProject : null) };
const noRequests = () => Promise.resolve({ requests: 0, counted: [] });
const spentWith = () => Promise.resolve({ picoUsd: 0n, counted: [] });
const log = createLog('error');

function inMemory(): Admission {
  return createMemoryAdmission({
    loadBalance: () => Promise.resolve({ balancePicoUsd, charged: [] }),
    loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
    onCredit: () => undefined,
    budgets,
    loadSpent: spentWith,
    projectLimits,
    loadDay: noRequests,
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
      spentWith,
      requestsWith: noRequests,
    },
    budgets,
    projectLimits,
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

/** One request after the other. @throws Error when one is rejected */
async function call(admission: Admission, key: KeyRef, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    const requestId = randomUUID();
    const amounts = { neededMicroUsd: 1n, wantedMicroUsd: 450n, estimatedTokens: 564 };
    const { organizationId, keyId } = key;
    const spender = { organizationId, keyId, projectId: keyId, user: null };
    const result = await admission.admit({ ...key, requestId, ...amounts, spender, model: 'model' });
    if (!result.ok) throw new Error(`an admission was refused: ${result.code}`);
    await committed();
    admission.settle(requestId, { chargedPicoUsd: 123_400_000n, tokens: 512 });
  }
}

let corks = true;

/** Lets only `src/base/redis/connect-redis.ts` gather the writes of sockets: nothing else here corks one. */
function makeCorkOptional(): void {
  const cork: (this: Socket) => void = Reflect.get(Socket.prototype, 'cork');
  Socket.prototype.cork = function (this: Socket): void {
    if (corks) cork.call(this);
  };
}

async function measureUncorked(admission: Admission): Promise<number> {
  corks = false;
  const micros = await measure(admission);
  corks = true;
  return micros;
}

/** Microseconds of CPU per request, settlements included. */
async function measure(admission: Admission): Promise<number> {
  const before = process.cpuUsage();
  const times = Math.ceil(requests / connections);
  const keyOf = (connection: number): KeyRef | undefined => keys[connection % keys.length];
  const calls = Array.from({ length: connections }, (_, connection) => keyOf(connection) ?? []).flat();
  await Promise.all(calls.map((key) => call(admission, key, times)));
  for (const { organizationId } of keys) {
    while ((await admission.heldMicroUsd(organizationId)) > 0n) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (times * connections);
}

/** Milliseconds until a request was admitted, and settled at once. */
async function timeOne(admission: Admission): Promise<number> {
  const [key] = keys;
  if (key === undefined) throw new Error('there is no key');
  const requestId = randomUUID();
  const sinceMs = performance.now();
  const amounts = { neededMicroUsd: 1n, wantedMicroUsd: 450n, estimatedTokens: 564 };
  const result = await admission.admit({ ...key, requestId, ...amounts });
  const tookMs = performance.now() - sinceMs;
  if (!result.ok) throw new Error(`an admission was refused: ${result.code}`);
  admission.settle(requestId, { chargedPicoUsd: 0n, tokens: 512 });
  return tookMs;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function timeSilences(admission: Admission, pid: number, times: number): Promise<void> {
  const [first, next]: [number[], number[]] = [[], []];
  for (let time = 0; time < times; time += 1) {
    // Until Redis decides again, and at another moment of the watch each time.
    await pause(1000 + 7 * time);
    for (let before = 0; before < 10; before += 1) await timeOne(admission);
    process.kill(pid, 'SIGSTOP');
    first.push(await timeOne(admission));
    for (let after = 0; after < 10; after += 1) next.push(await timeOne(admission));
    process.kill(pid, 'SIGCONT');
  }
  const said = (all: readonly number[]): string =>
    `median ${median(all).toFixed(1)}, most ${Math.max(...all).toFixed(1)}`;
  console.log(`ms until a decision without Redis: the first one ${said(first)}; the next ones ${said(next)}`);
}

async function main(): Promise<void> {
  const program = findRedisServer();
  if (program === null) throw new Error('there is no Redis server on PATH');
  const redis = await startServer(program);
  pin(process.pid, 1);
  if (redis.pid !== null) pin(redis.pid, 0);
  makeCorkOptional();
  const store = await connectRedis(redis.url, log);
  try {
    if (Number(values.silences) > 0) {
      await timeSilences(inRedis(store), redis.pid ?? 0, Number(values.silences));
      return;
    }
    const memoryAdmission = inMemory();
    const redisAdmission = inRedis(store);
    // Once over both, so that nobody is measured while his code is compiled.
    await measure(memoryAdmission);
    await measure(redisAdmission);
    await measureUncorked(redisAdmission);
    const found = { memory: [] as number[], redis: [] as number[], uncorked: [] as number[] };
    for (let round = 0; round < Number(values.rounds); round += 1) {
      found.memory.push(await measure(memoryAdmission));
      found.redis.push(await measure(redisAdmission));
      found.uncorked.push(await measureUncorked(redisAdmission));
    }
    const [memory, shared, uncorked] = [found.memory, found.redis, found.uncorked].map((each) =>
      median(each).toFixed(1),
    );
    console.log(`µs per request: memory ${memory}, redis ${shared}, redis uncorked ${uncorked}`);
  } finally {
    store.close();
    await redis.stop();
  }
}

await main();
