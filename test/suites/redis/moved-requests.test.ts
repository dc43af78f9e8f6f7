import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import type { RedisAdmission } from '#core/admission/admission.ts';
import type { ModelLimits } from '#core/limits/limits.ts';
import { ask, Scene } from '#test/admission/project-limit-scene.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Requests that other models answer while Redis is silent, and what their limits say then and afterwards. */

let redis: TestRedis;
let store: RedisStore;
let scene: Scene;
let admission: RedisAdmission;
let isFrozen = false;

beforeEach(async () => {
  redis = await startServer(findRedisServer() ?? 'redis-server');
  store = await connectRedis(redis.url, createLog('silent'));
  scene = new Scene();
  admission = scene.redis(store, 'gateway');
  scene.live = new Set(['gateway']);
  await admission.enter();
});
afterEach(async () => {
  thaw();
  await admission.close();
  store.close();
  await redis.stop();
});

function freeze(): void {
  process.kill(redis.pid ?? 0, 'SIGSTOP');
  isFrozen = true;
}

function thaw(): void {
  if (isFrozen) process.kill(redis.pid ?? 0, 'SIGCONT');
  isFrozen = false;
}

const isBack = (): Promise<unknown> =>
  eventually(async () => {
    try {
      await admission.heldMicroUsd(scene.spender.organizationId);
      return true;
    } catch {
      return false;
    }
  });

async function admitted(model: 'a' | 'b'): Promise<string> {
  const request = scene.request(model, 1);
  expect(await ask(admission, request)).toContain('ok');
  return request.requestId;
}

async function move(id: string, to: 'a' | 'b', isForced = false): Promise<boolean> {
  const isMoved = await admission.move(id, { model: to, estimatedTokens: 1, isForced });
  if (isMoved) scene.servedBy.set(id, to);
  return isMoved;
}

const limits: readonly Partial<ModelLimits>[] = [{ requestsPerMinute: 3 }, { requestsPerDay: 3 }];

describe.each(limits)('a request that moves to another model while Redis is unresponsive, with %j', (limit) => {
  it('is released when it moves to a model without limits, on any gateway', async () => {
    const earlier = await admitted('a');
    scene.limit('b', limit);
    await admitted('b');
    freeze();
    const own = await admitted('a');
    for (const id of [earlier, own]) {
      expect(await move(id, 'b')).toBe(true);
      expect(await move(id, 'a', true)).toBe(true);
    }
    expect(await ask(admission, scene.request('b', 1))).toContain('ok');
    expect(await ask(admission, scene.request('b', 1))).toContain('ok');
    expect(await ask(admission, scene.request('b', 1))).toContain('rate_limit_exceeded');
  });

  it('counts for its last model once Redis is back, together with requests that ended meanwhile', async () => {
    scene.limit('a', limit);
    scene.limit('b', limit);
    freeze();
    const [one, other, third] = [await admitted('a'), await admitted('a'), await admitted('a')];
    expect(await move(one, 'b')).toBe(true);
    expect(await move(other, 'b')).toBe(true);
    scene.end(admission, one, 1);
    scene.end(admission, third, 1);
    thaw();
    await isBack();
    const said = async (model: 'a' | 'b'): Promise<unknown[]> => {
      const all: unknown[] = [];
      for (let time = 0; time < 3; time += 1)
        all.push(((await ask(admission, scene.request(model, 1))) as unknown[])[0]);
      return all;
    };
    expect(await said('a')).toEqual(['ok', 'ok', 'rate_limit_exceeded']);
    expect(await said('b')).toEqual(['ok', 'rate_limit_exceeded', 'rate_limit_exceeded']);
  });
});

describe('a daily limit', () => {
  it('counts requests that a gateway admitted without Redis and did not report before it died', async () => {
    scene.limit('a', { requestsPerDay: 4 });
    const otherStore = await connectRedis(redis.url, createLog('silent'));
    const other = scene.redis(otherStore, 'other');
    scene.live = new Set(['gateway', 'other']);
    await other.enter();
    await admitted('a');
    freeze();
    // Both see that Redis is silent.
    const seen = [admission, other].map(async (one) => one.heldMicroUsd(scene.spender.organizationId));
    await Promise.allSettled(seen);
    const request = scene.request('a', 1);
    expect(await ask(other, request)).toContain('ok');
    scene.booked.set(request.requestId, 'a');
    otherStore.close();
    scene.live = new Set(['gateway']);
    thaw();
    await isBack();
    const said: unknown[] = [];
    for (let time = 0; time < 3; time += 1) said.push(((await ask(admission, scene.request('a', 1))) as unknown[])[0]);
    expect(said).toEqual(['ok', 'ok', 'rate_limit_exceeded']);
  });
});
