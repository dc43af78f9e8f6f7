import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import { createMemoryAdmission, createRedisAdmission, type RedisAdmission } from '#core/admission/admission.ts';
import type { Admission, AdmitRequest, AdmitResult } from '#core/admission/contract/types.ts';
import {
  type KeyLimits,
  type KeyUse,
  nextMonthMs,
  refuseByLimits,
  rollWindow,
  unusedKey,
} from '#core/limits/limits.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Both stores are given the same requests and must say the same; only moments may differ by the way to Redis. */

const log = createLog('silent');
const windowMs = 60_000;

let redis: TestRedis;
let store: RedisStore;
let client: Redis;

beforeAll(async () => {
  redis = await startRedis();
  store = await connectRedis(redis.url, log);
  client = new Redis(redis.url);
  // A script that Redis does not know yet is sent twice, and other calls may come between.
  const key = { organizationId: randomUUID(), keyId: randomUUID(), limits: unlimited };
  const request = { ...key, requestId: randomUUID(), neededMicroUsd: 1n, wantedMicroUsd: 1n, estimatedTokens: 1 };
  const admission = openRedis({ balancePicoUsd: 10n ** 12n, tokens: 0 });
  await admission.admit(request);
  admission.settle(request.requestId, { chargedPicoUsd: 0n, tokens: 1 });
  await admission.close();
});
afterAll(async () => {
  client.disconnect();
  store.close();
  await redis.stop();
});

const unlimited: KeyLimits = {
  requestsPerMinute: null,
  maxConcurrency: null,
  tokensPerMinute: null,
  monthlyTokenLimit: null,
};

interface Start {
  readonly balancePicoUsd: bigint;
  /** Tokens of the month that the books have. */
  readonly tokens: number;
}

function openRedis(start: Start, clock = systemClock): RedisAdmission {
  return createRedisAdmission({
    store,
    prefix: 'hg:test',
    gatewayId: randomUUID(),
    leaseMs: 30_000,
    books: {
      balanceWith: () => Promise.resolve({ balancePicoUsd: start.balancePicoUsd, charged: [] }),
      tokensWith: () => Promise.resolve({ tokens: start.tokens, counted: [] }),
      isRevoked: () => Promise.resolve(false),
    },
    collect: () => Promise.resolve([]),
    findSettled: () => Promise.resolve(new Map()),
    liveGateways: () => Promise.resolve(new Set<string>()),
    clock,
    log,
  });
}

function openMemory(start: Start): Admission {
  return createMemoryAdmission({
    loadBalance: () => Promise.resolve({ balancePicoUsd: start.balancePicoUsd, charged: [] }),
    loadTokens: () => Promise.resolve({ tokens: start.tokens, counted: [] }),
    onCredit: () => undefined,
    clock: systemClock,
  });
}

interface Asked {
  readonly needed: bigint;
  readonly more: bigint;
  readonly estimate: number;
}

type Step =
  | ({ readonly kind: 'admit' } & Asked)
  | { readonly kind: 'together'; readonly all: readonly Asked[] }
  | { readonly kind: 'settle'; readonly which: number; readonly charge: number; readonly tokens: number }
  | { readonly kind: 'extend'; readonly which: number; readonly more: bigint; readonly least: bigint };

const micro = fc.bigInt({ min: 0n, max: 400n });
const asked = { needed: micro, more: micro, estimate: fc.nat(300) };
const leastArbitrary = fc.oneof(fc.constant(0n), micro);
const stepArbitrary: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('admit' as const), ...asked }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('together' as const), all: fc.array(fc.record(asked), { maxLength: 8 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      which: fc.nat(20),
      charge: fc.integer({ min: 0, max: 1_000_000 }),
      tokens: fc.nat(500),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('extend' as const),
      which: fc.nat(20),
      more: micro,
      least: leastArbitrary,
    }),
  },
);
const limitArbitrary = (max: number) => fc.option(fc.integer({ min: 1, max }));
const limitsArbitrary: fc.Arbitrary<KeyLimits> = fc.record({
  requestsPerMinute: limitArbitrary(12),
  maxConcurrency: limitArbitrary(6),
  tokensPerMinute: limitArbitrary(1500),
  monthlyTokenLimit: limitArbitrary(3000),
});
const startArbitrary: fc.Arbitrary<Start> = fc.record({
  balancePicoUsd: fc.bigInt({ min: -10n, max: 2_000_000_000n }),
  tokens: fc.nat(1500),
});

/** An answer without the moments in it. */
function timeless(result: AdmitResult): unknown {
  if (result.ok) return { ...result, view: remaining(result.view) };
  if (!('limits' in result)) return result;
  return { code: result.code, view: result.view.remaining, limits: remaining(result.limits) };
}

function remaining(view: { requests: { remaining: number } | null; tokens: { remaining: number } | null }): unknown {
  return { requests: view.requests?.remaining ?? null, tokens: view.tokens?.remaining ?? null };
}

interface Held {
  readonly id: string;
  microUsd: bigint;
}

/** Asks for some at the same moment, which are answered in their order; those admitted are added to `held`. */
async function admitAll(
  admission: Admission,
  requests: readonly AdmitRequest[],
  held: Held[],
): Promise<readonly unknown[]> {
  const said: unknown[] = [];
  for (const request of requests) said.push(timeless(await admission.check(request)));
  const results = await Promise.all(requests.map(async (request) => admission.admit(request)));
  for (const [index, result] of results.entries()) {
    if (result.ok) held.push({ id: requests[index]?.requestId ?? '', microUsd: result.heldMicroUsd });
    said.push(timeless(result));
  }
  return said;
}

/** Plays a history of one key; returns the result of each step. */
async function play(admission: Admission, steps: readonly Step[], limits: KeyLimits): Promise<unknown[]> {
  const key = { organizationId: randomUUID(), keyId: randomUUID(), limits };
  const held: Held[] = [];
  const said: unknown[] = [];
  const requestFor = ({ needed, more, estimate }: Asked): AdmitRequest => {
    const funds = { neededMicroUsd: needed, wantedMicroUsd: needed + more };
    return { ...key, requestId: randomUUID(), ...funds, estimatedTokens: estimate };
  };
  for (const step of steps) {
    const hold = 'which' in step ? held[step.which % Math.max(1, held.length)] : undefined;
    if (step.kind === 'admit') said.push(...(await admitAll(admission, [requestFor(step)], held)));
    else if (step.kind === 'together') said.push(...(await admitAll(admission, step.all.map(requestFor), held)));
    else if (hold === undefined) continue;
    else if (step.kind === 'extend') {
      const extended = await admission.extend(hold.id, step.more, step.least);
      const added = typeof extended === 'bigint' ? extended : 0n;
      hold.microUsd += added;
      said.push(added);
    } else {
      held.splice(held.indexOf(hold), 1);
      const chargedPicoUsd = hold.microUsd * BigInt(step.charge);
      admission.settle(hold.id, { chargedPicoUsd, tokens: step.tokens });
    }
    said.push(remaining(await admission.view(key)), await admission.heldMicroUsd(key.organizationId));
  }
  return said;
}

describe('admission rules in Redis', () => {
  it('give the same results as in memory for any sequence of steps', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(stepArbitrary, { maxLength: 25 }),
        limitsArbitrary,
        startArbitrary,
        async (steps, limits, start) => {
          expect(await play(openRedis(start), steps, limits)).toEqual(await play(openMemory(start), steps, limits));
        },
      ),
      { numRuns: 150 },
    );
  });

  it('roll windows, pay off debt, and return the exact wait', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({ agoMs: fc.integer({ min: 0, max: 10 * windowMs }), requests: fc.nat(5), tokens: fc.nat(5000) }),
        limitsArbitrary.map((limits) => ({ ...limits, monthlyTokenLimit: null })),
        fc.integer({ min: 1, max: 500 }),
        async ({ agoMs, requests, tokens }, limits, estimatedTokens) => {
          // Not at the edge of a window, where the way to Redis would decide.
          fc.pre(agoMs % windowMs > 500 && agoMs % windowMs < windowMs - 2000);
          const key = { organizationId: randomUUID(), keyId: randomUUID(), limits };
          const admission = openRedis({ balancePicoUsd: 10n ** 12n, tokens: 0 });
          const nowMs = Date.now();
          const use = { s: nowMs - agoMs, n: requests, t: tokens, a: 1 };
          await client.hset(`hg:test:{${key.organizationId}}:${key.keyId}:use`, use);
          const request = { ...key, requestId: randomUUID(), neededMicroUsd: 1n, wantedMicroUsd: 1n, estimatedTokens };
          const result = await admission.admit(request);
          const known: KeyUse = { ...unusedKey(), windowStartMs: nowMs - agoMs, requests, tokens };
          rollWindow(known, limits, nowMs);
          const expected = refuseByLimits(known, limits, estimatedTokens, { nowMs, monthEndMs: nextMonthMs(nowMs) });
          const said = 'retryAfterMs' in result ? result : null;
          expect(result.ok || said !== null).toBe(true);
          expect(said?.code).toBe(expected?.code);
          expect(Math.abs((said?.retryAfterMs ?? 0) - (expected?.retryAfterMs ?? 0))).toBeLessThan(1500);
        },
      ),
      { numRuns: 150 },
    );
  });

  it('end a window that starts in the future within a minute', async () => {
    const limits = { ...unlimited, requestsPerMinute: 1 };
    const key = { organizationId: randomUUID(), keyId: randomUUID(), limits };
    const admission = openRedis({ balancePicoUsd: 10n ** 12n, tokens: 0 });
    const use = `hg:test:{${key.organizationId}}:${key.keyId}:use`;
    await client.hset(use, { s: Date.now() + 3_600_000, n: 1, t: 0 });
    const request = { ...key, requestId: randomUUID(), neededMicroUsd: 1n, wantedMicroUsd: 1n, estimatedTokens: 1 };
    const refused = await admission.admit(request);
    expect(refused).toMatchObject({ code: 'rate_limit_exceeded' });
    expect('retryAfterMs' in refused ? refused.retryAfterMs : 0).toBeLessThanOrEqual(windowMs);
    await admission.close();
  });

  it('report monthly_quota_exceeded with the shortest wait when the month ended on the way', async () => {
    const limits = { ...unlimited, monthlyTokenLimit: 10 };
    const endMs = nextMonthMs(Date.now());
    const clock = { ...systemClock, now: () => endMs + 1000 };
    const admission = openRedis({ balancePicoUsd: 10n ** 12n, tokens: 10 }, clock);
    const key = { organizationId: randomUUID(), keyId: randomUUID(), limits };
    const request = { ...key, requestId: randomUUID(), neededMicroUsd: 1n, wantedMicroUsd: 1n, estimatedTokens: 1 };
    const refused = await admission.admit(request);
    expect(refused).toMatchObject({ code: 'monthly_quota_exceeded', retryAfterMs: 1, view: { resetAtMs: endMs } });
    await admission.close();
  });

  it('keep balances of millions of USD exact to the pico-dollar', async () => {
    const balancePicoUsd = 5_000_000_000_000_000_000n + 123_456n;
    const admission = openRedis({ balancePicoUsd, tokens: 0 });
    const key = { organizationId: randomUUID(), keyId: randomUUID(), limits: unlimited };
    let left = balancePicoUsd;
    for (const chargedPicoUsd of [1n, 999_999n, 1_000_001n, 2_999_999_999_999_999_999n, 123_456n]) {
      const requestId = randomUUID();
      const wanted = 3_000_000_000_001n;
      const request = { ...key, requestId, neededMicroUsd: 1n, wantedMicroUsd: wanted, estimatedTokens: 1 };
      const result = await admission.admit(request);
      const available = left / 1_000_000n;
      expect(result).toMatchObject({ ok: true, heldMicroUsd: available < wanted ? available : wanted });
      admission.settle(requestId, { chargedPicoUsd, tokens: 1 });
      left -= chargedPicoUsd;
    }
    const all = {
      ...key,
      requestId: randomUUID(),
      neededMicroUsd: 10n ** 15n,
      wantedMicroUsd: 10n ** 15n,
      estimatedTokens: 1,
    };
    expect(await admission.admit(all)).toEqual({
      ok: false,
      code: 'insufficient_funds',
      balancePicoUsd: left,
      heldMicroUsd: 0n,
    });
  });
});
