import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import type { Admission, AdmitRequest, Spending } from '#core/admission/contract/types.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { Scene, usedOf } from './budget-scene.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Hard budgets over books that the test writes: memory and Redis say the same, and what they say is exact. */

const log = createLog('silent');
let redis: TestRedis;
let store: RedisStore;
let client: Redis;
beforeAll(async () => {
  redis = await startRedis();
  store = await connectRedis(redis.url, log);
  client = new Redis(redis.url);
  // A script that Redis does not know yet is sent twice, and other calls may come between.
  const scene = new Scene(store);
  for (const amount of [100n, null]) {
    if (amount !== null) scene.amounts.set('api_key', amount);
    else scene.amounts.clear();
    const admission = scene.redis();
    const request = scene.request(10n);
    await admission.admit(request);
    await admission.extend(request.requestId, 1n);
    admission.spooled(request.requestId, usedOf(0n));
    scene.end(admission, request.requestId, 0n);
    await admission.close();
  }
});
afterAll(async () => {
  client.disconnect();
  store.close();
  await redis.stop();
});

const picoOf = (microUsd: bigint): bigint => microUsd * 1_000_000n;

async function codeOf(admission: Admission, request: AdmitRequest): Promise<string> {
  const result = await admission.admit(request);
  return result.ok ? `ok ${result.heldMicroUsd}` : result.code;
}

/** The most that the next request may hold: found by asking, without holding anything. */
async function leftOf(scene: Scene, admission: Admission): Promise<bigint> {
  const result = await admission.check(scene.request(0n, 10n ** 12n));
  if (!result.ok) throw new Error(result.code);
  return result.heldMicroUsd;
}

type Step =
  | { readonly kind: 'admit'; readonly needed: bigint; readonly more: bigint }
  | { readonly kind: 'settle' | 'spool'; readonly which: number; readonly charge: number }
  | { readonly kind: 'extend'; readonly which: number; readonly more: bigint; readonly least: bigint }
  | { readonly kind: 'amount'; readonly type: Spending['type']; readonly microUsd: bigint | null }
  | { readonly kind: 'forget' };

const micro = fc.bigInt({ min: 0n, max: 400n });
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('admit' as const), needed: micro, more: micro }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('settle' as const, 'spool' as const),
      which: fc.nat(20),
      charge: fc.integer({ min: 0, max: 1_000_000 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('extend' as const),
      which: fc.nat(20),
      more: micro,
      least: fc.oneof(fc.constant(0n), micro),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('amount' as const),
      type: fc.constantFrom('project' as const, 'api_key' as const, 'user' as const),
      microUsd: fc.option(fc.bigInt({ min: 0n, max: 2000n })),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('forget' as const) }) },
);

interface Held {
  readonly id: string;
  microUsd: bigint;
  spooled: bigint | null;
}

/** Plays a history, and records the notices. */
class Player {
  readonly said: unknown[] = [];
  readonly #scene = new Scene(store);
  readonly #held: Held[] = [];
  readonly #admission: Admission;

  constructor(kind: 'memory' | 'redis') {
    this.#scene.amounts.set('api_key', 1000n);
    this.#admission = kind === 'memory' ? this.#scene.memory() : this.#scene.redis();
  }

  async play(step: Step): Promise<void> {
    if (step.kind === 'admit') await this.#admit(step.needed, step.needed + step.more);
    else if (step.kind === 'amount') this.#change(step.type, step.microUsd);
    else if (step.kind === 'forget') await this.#forget();
    else {
      const hold = this.#held[step.which % Math.max(1, this.#held.length)];
      if (hold === undefined) return;
      if (step.kind === 'extend') await this.#extend(hold, step);
      else this.#end(hold, step);
    }
    await this.#noteHeld();
  }

  async #admit(needed: bigint, wanted: bigint): Promise<void> {
    const request = this.#scene.request(needed, wanted);
    const result = await this.#admission.admit(request);
    if (result.ok) this.#held.push({ id: request.requestId, microUsd: result.heldMicroUsd, spooled: null });
    const why = result.ok || !('budget' in result) ? null : result.budget.spending.type;
    this.said.push(result.ok ? result.heldMicroUsd : [result.code, why]);
  }

  #change(type: Spending['type'], microUsd: bigint | null): void {
    if (microUsd === null) this.#scene.amounts.delete(type);
    else this.#scene.amounts.set(type, microUsd);
  }

  /** When nothing is on its way to Redis. */
  async #forget(): Promise<void> {
    await this.#admission.heldMicroUsd(this.#scene.organizationId);
    await client.del(this.#scene.name('budgets'));
  }

  async #extend(hold: Held, { more, least }: Step & { readonly kind: 'extend' }): Promise<void> {
    const added = await this.#admission.extend(hold.id, more, least);
    const isTooLittle = typeof added === 'bigint' && added > 0n && added < least && added < more;
    if (isTooLittle) throw new Error(`${added} was added where ${least} was the least`);
    if (typeof added === 'bigint') hold.microUsd += added;
    this.said.push(typeof added === 'bigint' || added === null ? added : added.spending.type);
  }

  #end(hold: Held, { kind, charge }: { readonly kind: 'settle' | 'spool'; readonly charge: number }): void {
    const chargedPicoUsd = hold.spooled ?? hold.microUsd * BigInt(charge);
    if (kind === 'spool' && hold.spooled === null) {
      hold.spooled = chargedPicoUsd;
      this.#admission.spooled(hold.id, usedOf(chargedPicoUsd));
      return;
    }
    this.#held.splice(this.#held.indexOf(hold), 1);
    this.#scene.end(this.#admission, hold.id, chargedPicoUsd);
  }

  async #noteHeld(): Promise<void> {
    const { budgets, spender, organizationId } = this.#scene;
    for (const { slot } of budgets.of(spender, uuidv7(), '')) {
      this.said.push(await this.#admission.heldOfSlot(organizationId, slot));
    }
  }
}

async function play(kind: 'memory' | 'redis', history: readonly Step[]): Promise<unknown[]> {
  const player = new Player(kind);
  for (const step of history) await player.play(step);
  return player.said;
}

describe('budget rules', () => {
  it('give the same results in Redis and in memory for any sequence of steps', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { maxLength: 30 }), async (history) => {
        expect(await play('redis', history)).toEqual(await play('memory', history));
      }),
      { numRuns: 150 },
    );
  });

  it.each(['memory', 'redis'] as const)(
    'never let spent and held exceed the amount, and are exact, in %s',
    async (kind) => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.bigInt({ min: 1n, max: 300n }), fc.integer({ min: 0, max: 1_000_000 }), fc.boolean())),
          async (asked) => {
            const scene = new Scene(store);
            scene.amounts.set('project', 1000n);
            const admission = kind === 'memory' ? scene.memory() : scene.redis();
            const running = new Map<string, bigint>();
            await Promise.all(
              asked.map(async ([needed, charge, settles]) => {
                const request = scene.request(needed);
                const result = await admission.admit(request);
                if (!result.ok) return;
                running.set(request.requestId, result.heldMicroUsd);
                const held = [...running.values()].reduce((sum, one) => sum + one, 0n);
                const spent = [...scene.booked.values()].reduce((sum, one) => sum + one, 0n);
                expect(picoOf(held) + spent).toBeLessThanOrEqual(picoOf(1000n));
                if (!settles) return;
                running.delete(request.requestId);
                scene.end(admission, request.requestId, result.heldMicroUsd * BigInt(charge));
              }),
            );
            const held = [...running.values()].reduce((sum, one) => sum + one, 0n);
            const spent = [...scene.booked.values()].reduce((sum, one) => sum + one, 0n);
            expect(await leftOf(scene, admission)).toBe(1000n - held - (spent + 999_999n) / 1_000_000n);
          },
        ),
        { numRuns: 60 },
      );
    },
  );
});

describe.each(['memory', 'redis'] as const)('a budget, in %s', (kind) => {
  const open = (scene: Scene): Admission => (kind === 'memory' ? scene.memory() : scene.redis());

  it('of a model holds and is charged what a request that moves to its model holds', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 1000n);
    for (const model of ['a', 'b']) scene.ofModels.set(model, 100n);
    const admission = open(scene);
    const [first, second, third] = [60n, 50n, 30n].map((held) => ({ ...scene.request(held), model: 'a' }));
    if (first === undefined || second === undefined || third === undefined) throw new Error('no requests');
    const slotOf = (model: string): string =>
      scene.budgets.of(scene.spender, first.requestId, model).at(-1)?.slot ?? '';
    const held = (): Promise<bigint[]> =>
      Promise.all(['a', 'b', ''].map(async (model) => admission.heldOfSlot(scene.organizationId, slotOf(model))));
    const move = async ({ requestId }: AdmitRequest, model: string, isForced = false): Promise<boolean> =>
      admission.move(requestId, { model, estimatedTokens: 1, isForced });
    expect(await codeOf(admission, first)).toBe('ok 60');
    expect(await codeOf(admission, second)).toBe('budget_exceeded');
    expect(await codeOf(admission, third)).toBe('ok 30');
    expect(await held()).toEqual([90n, 0n, 90n]);
    expect(await move(first, 'b')).toBe(true);
    expect(await codeOf(admission, second)).toBe('ok 50');
    expect(await held()).toEqual([80n, 60n, 140n]);
    expect(await move(second, 'b')).toBe(false);
    expect(await held()).toEqual([80n, 60n, 140n]);
    expect(await move(third, 'b')).toBe(true);
    expect(await admission.extend(third.requestId, 20n)).toBe(10n);
    expect(await move(first, 'a', true)).toBe(true);
    expect(await held()).toEqual([110n, 40n, 150n]);
    expect(await move(first, 'c')).toBe(true);
    for (const [request, charge] of [
      [first, 60n],
      [second, 50n],
      [third, 40n],
    ] as const) {
      scene.end(admission, request.requestId, picoOf(charge));
    }
    expect(await held()).toEqual([0n, 0n, 0n]);
    expect(await codeOf(admission, { ...scene.request(1n), model: 'c' })).toBe('ok 1');
  });

  it('belongs to the period in which a request was accepted, also when the period ends while the request runs', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 100n);
    const admission = open(scene);
    const lateMs = Date.UTC(2031, 4, 17, 23, 59, 30);
    const late = scene.request(60n, 60n, lateMs);
    expect(await codeOf(admission, late)).toBe('ok 60');
    expect(await codeOf(admission, scene.request(60n, 60n, lateMs))).toBe('budget_exceeded');
    expect(await codeOf(admission, scene.request(60n, 60n, lateMs + 60_000))).toBe('ok 60');
    expect(await admission.extend(late.requestId, 100n)).toBe(40n);
    scene.end(admission, late.requestId, picoOf(100n));
    expect(await codeOf(admission, scene.request(1n, 1n, lateMs))).toBe('budget_exceeded');
    expect(await codeOf(admission, scene.request(40n, 40n, lateMs + 60_000))).toBe('ok 40');
  });

  it('counts a charge once when the books have it before the request is settled', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 100n);
    const admission = open(scene);
    const first = scene.request(60n);
    expect(await codeOf(admission, first)).toBe('ok 60');
    // Booked, and read by who knows nothing of the budget's spending yet.
    scene.booked.set(first.requestId, picoOf(50n));
    scene.amounts.set('project', 100n);
    expect(await codeOf(admission, scene.request(40n))).toBe('ok 40');
    admission.settle(first.requestId, usedOf(picoOf(50n)));
    expect(await codeOf(admission, scene.request(11n))).toBe('budget_exceeded');
    expect(await codeOf(admission, scene.request(10n))).toBe('ok 10');
  });

  it('applies as it is when the books answer, not as it was when the request came', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 1000n);
    const admission = open(scene);
    scene.meanwhile = () => void scene.amounts.set('api_key', 50n);
    expect(await codeOf(admission, scene.request(60n))).toBe('budget_exceeded');
    scene.amounts.set('user', 1000n);
    scene.meanwhile = () => void scene.amounts.set('project', 10n);
    expect(await codeOf(admission, scene.request(20n))).toBe('budget_exceeded');
    scene.amounts.set('project', 1000n);
    scene.amounts.delete('user');
    expect(await codeOf(admission, scene.request(50n))).toBe('ok 50');
  });

  it('is read again when a request settles during the read', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 100n);
    const admission = open(scene);
    const first = scene.request(50n);
    expect(await codeOf(admission, first)).toBe('ok 50');
    scene.amounts.set('user', 100n);
    let reads = 0;
    scene.meanwhile = () => {
      reads += 1;
      if (reads === 1) scene.end(admission, first.requestId, picoOf(30n));
    };
    expect(await codeOf(admission, scene.request(70n))).toBe('ok 70');
    expect(reads).toBeGreaterThanOrEqual(2);
    expect(await codeOf(admission, scene.request(1n))).toBe('budget_exceeded');
  });
});

describe('budgets of several gateways', () => {
  it('restore their state, with running requests, after Redis lost all data', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 100n);
    const gateway = scene.redis();
    const [running, ended] = [scene.request(30n), scene.request(20n)];
    for (const request of [running, ended]) await gateway.admit(request);
    scene.end(gateway, ended.requestId, picoOf(15n));
    await gateway.heldMicroUsd(scene.organizationId);
    await client.flushall();
    expect(await codeOf(gateway, scene.request(56n))).toBe('budget_exceeded');
    expect(await codeOf(gateway, scene.request(55n))).toBe('ok 55');
    scene.end(gateway, running.requestId, picoOf(30n));
    expect(await codeOf(gateway, scene.request(1n))).toBe('budget_exceeded');
  });

  it('move with a request that moved while Redis was silent', async () => {
    const scene = new Scene(store);
    for (const model of ['a', 'b']) scene.ofModels.set(model, 100n);
    const gateway = scene.redis();
    const request = { ...scene.request(60n), model: 'a' };
    await gateway.admit(request);
    const slotOf = (model: string): string => scene.budgets.of(scene.spender, request.requestId, model)[0]?.slot ?? '';
    expect(await gateway.move(request.requestId, { model: 'b', estimatedTokens: 1, isForced: false })).toBe(true);
    // Redis is set back to its state before the move.
    const [holds, money] = [scene.name('holds'), scene.name('money')];
    await client.hset(holds, `${request.requestId}:b`, slotOf('a'));
    await client.hdel(money, `h:${slotOf('b')}`);
    await client.hset(money, `h:${slotOf('a')}`, '60');
    await gateway.register(scene.organizationId);
    const held = (model: string) => gateway.heldOfSlot(scene.organizationId, slotOf(model));
    expect([await held('a'), await held('b')]).toEqual([0n, 60n]);
    scene.end(gateway, request.requestId, picoOf(60n));
    expect([await held('a'), await held('b')]).toEqual([0n, 0n]);
    await gateway.close();
  });

  it('release what a dead gateway held, except for what the books say was spent', async () => {
    const scene = new Scene(store);
    scene.amounts.set('api_key', 100n);
    const [gone, stays] = [scene.redis('gone', 300), scene.redis('stays', 300)];
    scene.live = new Set(['stays']);
    const [booked, lost] = [scene.request(50n), scene.request(40n)];
    for (const request of [booked, lost]) await gone.admit(request);
    scene.booked.set(booked.requestId, picoOf(20n));
    expect(await codeOf(stays, scene.request(20n))).toBe('budget_exceeded');
    await new Promise((resolve) => setTimeout(resolve, 400));
    await stays.sweep();
    expect(await codeOf(stays, scene.request(81n))).toBe('budget_exceeded');
    expect(await codeOf(stays, scene.request(80n))).toBe('ok 80');
  });
});
