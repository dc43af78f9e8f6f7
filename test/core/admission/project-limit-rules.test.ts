import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import type { ModelLimits } from '#core/limits/limits.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { ask, type Model, models, Scene } from '#test/admission/project-limit-scene.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Limits of a project over books that the test writes: memory and Redis say the same, and what they say is exact. */

const log = createLog('silent');
let redis: TestRedis;
let store: RedisStore;
let client: Redis;
beforeAll(async () => {
  redis = await startRedis();
  store = await connectRedis(redis.url, log);
  client = new Redis(redis.url);
  // A script that Redis does not know yet is sent twice, and other calls may come between.
  const scene = new Scene();
  const admission = scene.redis(store);
  for (const limit of [null, { requestsPerDay: 9 }, {}]) {
    if (limit === null) scene.limits.clear();
    else scene.limit('a', limit);
    const request = scene.request('a', 1);
    await admission.admit(request);
    await admission.move(request.requestId, { model: 'b', estimatedTokens: 1, isForced: true });
    admission.spooled(request.requestId, { chargedPicoUsd: 0n, tokens: 1 });
    scene.end(admission, request.requestId, 1);
  }
  await admission.close();
});
afterAll(async () => {
  client.disconnect();
  store.close();
  await redis.stop();
});

type Step =
  | { readonly kind: 'admit'; readonly model: Model; readonly estimate: number }
  | { readonly kind: 'settle' | 'spool'; readonly which: number; readonly tokens: number }
  | {
      readonly kind: 'move';
      readonly which: number;
      readonly to: Model;
      readonly estimate: number;
      readonly isForced: boolean;
    }
  | { readonly kind: 'limit'; readonly model: Model; readonly limits: ModelLimits | null }
  | { readonly kind: 'forget' };

const model = fc.constantFrom(...models);
const most = (max: number) => fc.option(fc.integer({ min: 1, max }));
const limitsArbitrary = fc.record({ requestsPerMinute: most(6), tokensPerMinute: most(500), requestsPerDay: most(8) });
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('admit' as const), model, estimate: fc.nat(300) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('settle' as const, 'spool' as const),
      which: fc.nat(20),
      tokens: fc.nat(400),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('move' as const),
      which: fc.nat(20),
      to: model,
      estimate: fc.nat(300),
      isForced: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('limit' as const), model, limits: fc.option(limitsArbitrary) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('forget' as const) }) },
);

/** Plays a history, and records the notices. */
async function play(kind: 'memory' | 'redis', history: readonly Step[]): Promise<unknown[]> {
  const scene = new Scene();
  scene.limit('a', { requestsPerMinute: 5, tokensPerMinute: 600, requestsPerDay: 7 });
  const admission = kind === 'memory' ? scene.memory() : scene.redis(store);
  const said: unknown[] = [];
  const held: { readonly id: string; tokens: number | null }[] = [];
  const play = async (step: Step): Promise<void> => {
    if (step.kind === 'admit') {
      const request = scene.request(step.model, step.estimate);
      const answer = await ask(admission, request);
      if (Array.isArray(answer) && answer[0] === 'ok') held.push({ id: request.requestId, tokens: null });
      said.push(answer);
    } else if (step.kind === 'limit') {
      if (step.limits === null) scene.limits.delete(step.model);
      else scene.limit(step.model, step.limits);
    } else if (step.kind === 'forget') {
      // When nothing is on its way to Redis.
      await admission.heldMicroUsd(scene.spender.organizationId);
      await client.del(`hg:test:{${scene.spender.organizationId}}:days`);
    } else {
      const hold = held[step.which % Math.max(1, held.length)];
      if (hold === undefined) return;
      if (step.kind === 'move') {
        const { to, estimate, isForced } = step;
        const isMoved = await admission.move(hold.id, { model: to, estimatedTokens: estimate, isForced });
        if (isMoved) scene.servedBy.set(hold.id, to);
        said.push(isMoved);
      } else if (step.kind === 'spool' && hold.tokens === null) {
        hold.tokens = step.tokens;
        admission.spooled(hold.id, { chargedPicoUsd: 0n, tokens: step.tokens });
      } else {
        held.splice(held.indexOf(hold), 1);
        scene.end(admission, hold.id, hold.tokens ?? step.tokens);
      }
    }
  };
  for (const step of history) await play(step);
  return said;
}

describe('rules of project limits', () => {
  it('give the same results in Redis and in memory for any sequence of steps', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { maxLength: 40 }), async (history) => {
        expect(await play('redis', history)).toEqual(await play('memory', history));
      }),
      { numRuns: 200 },
    );
  });
});

describe('a daily count that is not known yet', () => {
  it('delays no request for another model, with 500 requests waiting for this one', async () => {
    const scene = new Scene();
    const admission = scene.redis(store);
    expect(await ask(admission, scene.request('b', 1))).toEqual(['ok', [null, null]]);
    scene.limit('a', { requestsPerDay: 1000 });
    const { promise: isRead, resolve: read } = Promise.withResolvers<void>();
    scene.beforeDay = isRead;
    const waiting: Promise<unknown>[] = [];
    let isAnswered = false;
    const other = ask(admission, scene.request('b', 1)).finally(() => (isAnswered = true));
    for (let time = 0; time < 500 && !isAnswered; time += 1) {
      waiting.push(ask(admission, scene.request('a', 1)));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await other).toEqual(['ok', [null, null]]);
    read();
    expect(new Set((await Promise.all(waiting)).map((said) => JSON.stringify(said).slice(0, 5)))).toEqual(
      new Set(['["ok"']),
    );
    await admission.close();
  });
});

describe('a project limit in memory', () => {
  it('frees the day of a request that moves to another model, also when the day had no limit at admission', async () => {
    const history: readonly Step[] = [
      { kind: 'limit', model: 'a', limits: { requestsPerMinute: 9, tokensPerMinute: null, requestsPerDay: null } },
      { kind: 'admit', model: 'a', estimate: 1 },
      { kind: 'limit', model: 'a', limits: { requestsPerMinute: 9, tokensPerMinute: null, requestsPerDay: 2 } },
      { kind: 'admit', model: 'a', estimate: 1 },
      { kind: 'move', which: 0, to: 'b', estimate: 1, isForced: false },
      { kind: 'admit', model: 'a', estimate: 1 },
    ];
    const said = await play('memory', history);
    expect(said.at(-1)).toEqual(['ok', [0, null]]);
    expect(said).toEqual(await play('redis', history));
  });

  it('counts requests spooled by an earlier process once they are in the books', async () => {
    const scene = new Scene();
    const admission = scene.memory();
    scene.limit('a', { requestsPerDay: 2 });
    expect(await ask(admission, scene.request('a', 1))).toEqual(['ok', [1, null]]);
    const earlier = scene.request('a', 1);
    scene.booked.set(earlier.requestId, 'a');
    const { organizationId, keyId, requestId } = earlier;
    admission.settleReplayed(organizationId, keyId, requestId, { chargedPicoUsd: 0n, tokens: 1 });
    expect(await ask(admission, scene.request('a', 1))).toEqual(['rate_limit_exceeded', 'requestsPerDay', [0, null]]);
  });
});
