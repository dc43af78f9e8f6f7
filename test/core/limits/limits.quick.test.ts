import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  countAdmitted,
  divideLimits,
  divideUse,
  monthStartMs,
  nextDayMs,
  nextMonthMs,
  refuseByLimits,
  refuseByModel,
  reserve,
  rollWindow,
  unusedKey,
  unusedModel,
  viewLimits,
  viewModel,
  windowMs,
  type KeyLimits,
  type KeyUse,
} from '#core/limits/limits.ts';

/** One key by only the rules, with a clock that the test turns. */
class Caller {
  nowMs = Date.UTC(2026, 4, 17, 11, 30);
  readonly use: KeyUse = unusedKey();
  readonly #limits: KeyLimits;
  #monthMs = monthStartMs(this.nowMs);

  constructor(limits: KeyLimits) {
    this.#limits = limits;
  }

  /** Asks, runs at once and uses `used` tokens; the refusal, or null. */
  ask(estimate: number, used: number) {
    if (monthStartMs(this.nowMs) !== this.#monthMs) this.use.monthTokens = 0;
    this.#monthMs = monthStartMs(this.nowMs);
    rollWindow(this.use, this.#limits, this.nowMs);
    const refused = refuseByLimits(this.use, this.#limits, estimate, {
      nowMs: this.nowMs,
      monthEndMs: nextMonthMs(this.nowMs),
    });
    if (refused !== null) return refused;
    const { tokensPerMinute, monthlyTokenLimit } = this.#limits;
    countAdmitted(this.use, this.nowMs);
    if (tokensPerMinute !== null) this.use.tokens += used;
    if (monthlyTokenLimit !== null) this.use.monthTokens += used;
    this.use.running -= 1;
    return null;
  }

  view() {
    rollWindow(this.use, this.#limits, this.nowMs);
    return viewLimits(this.use, this.#limits, this.nowMs);
  }
}

const limit = (max: number) => fc.option(fc.integer({ min: 1, max }));
const limits: fc.Arbitrary<KeyLimits> = fc.record({
  requestsPerMinute: limit(5),
  maxConcurrency: limit(3),
  tokensPerMinute: limit(400),
  monthlyTokenLimit: limit(4000),
});
const step = fc.record({ waitMs: fc.nat(90_000), estimate: fc.nat(600), used: fc.nat(900) });

describe('the limits of a key', () => {
  it('never reject a caller again who waited exactly Retry-After', () => {
    fc.assert(
      fc.property(limits, fc.array(step, { maxLength: 40 }), (of, steps) => {
        const caller = new Caller(of);
        for (const { waitMs, estimate, used } of steps) {
          caller.nowMs += waitMs;
          const refused = caller.ask(estimate, used);
          if (refused === null) continue;
          caller.nowMs += Math.ceil(refused.retryAfterMs / 1000) * 1000;
          expect(caller.ask(estimate, used)).toBeNull();
        }
      }),
      { numRuns: 500 },
    );
  });

  it('return no Retry-After that is too long: one millisecond earlier the request is still rejected', () => {
    fc.assert(
      fc.property(limits, fc.array(step, { maxLength: 40 }), (of, steps) => {
        const caller = new Caller(of);
        for (const { waitMs, estimate, used } of steps) {
          caller.nowMs += waitMs;
          const refused = caller.ask(estimate, used);
          if (refused === null || refused.code === 'concurrency_limit_exceeded') continue;
          caller.nowMs += refused.retryAfterMs - 1;
          expect(caller.ask(estimate, used)).not.toBeNull();
        }
      }),
      { numRuns: 500 },
    );
  });

  it('accept no more requests per window than the limit, and return the number left', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.array(fc.nat(20_000), { maxLength: 60 }), (most, waits) => {
        const caller = new Caller({
          requestsPerMinute: most,
          maxConcurrency: null,
          tokensPerMinute: null,
          monthlyTokenLimit: null,
        });
        for (const waitMs of waits) {
          caller.nowMs += waitMs;
          const left = caller.view().requests?.remaining ?? 0;
          expect(caller.ask(1, 1) === null).toBe(left > 0);
          expect(caller.use.requests).toBeLessThanOrEqual(most);
        }
      }),
    );
  });

  it('start a window with the first counted request, and free nothing inside it', () => {
    const caller = new Caller({
      requestsPerMinute: 2,
      maxConcurrency: null,
      tokensPerMinute: null,
      monthlyTokenLimit: null,
    });
    const beganMs = caller.nowMs;
    caller.ask(1, 1);
    caller.nowMs += 50_000;
    caller.ask(1, 1);
    caller.nowMs = beganMs + windowMs - 1;
    expect(caller.ask(1, 1)).toMatchObject({ code: 'rate_limit_exceeded', retryAfterMs: 1 });
    caller.nowMs += 1;
    expect(caller.ask(1, 1)).toBeNull();
    expect(caller.view().requests).toEqual({ limit: 2, remaining: 1, resetAtMs: beganMs + 2 * windowMs });
  });

  it('return the time when all tokens of a minute are left again, also after more than the limit', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 400 }), fc.integer({ min: 1, max: 4000 }), (most, used) => {
        const caller = new Caller({
          requestsPerMinute: null,
          maxConcurrency: null,
          tokensPerMinute: most,
          monthlyTokenLimit: null,
        });
        caller.ask(1, used);
        const resetAtMs = caller.view().tokens?.resetAtMs ?? 0;
        caller.nowMs = resetAtMs - 1;
        expect(caller.view().tokens?.remaining).toBeLessThan(most);
        caller.nowMs = resetAtMs;
        expect(caller.view().tokens?.remaining).toBe(most);
      }),
    );
  });

  it('never reserve more tokens than the limit itself', () => {
    expect(reserve(1000, 10)).toBe(10);
    expect(reserve(5, 10)).toBe(5);
    expect(reserve(5, null)).toBe(0);
  });

  it('return the shortest wait for a month that ended since it was counted', () => {
    const limits = { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: 10 };
    const monthEndMs = Date.UTC(2026, 5, 1);
    const use = { ...unusedKey(), monthTokens: 10 };
    expect(refuseByLimits(use, limits, 1, { nowMs: monthEndMs - 5, monthEndMs })?.retryAfterMs).toBe(5);
    const refused = refuseByLimits(use, limits, 1, { nowMs: monthEndMs + 5, monthEndMs });
    expect(refused).toMatchObject({ code: 'monthly_quota_exceeded', retryAfterMs: 1, view: { resetAtMs: monthEndMs } });
  });

  it('count months in UTC', () => {
    const lastMs = Date.UTC(2026, 11, 31, 23, 59, 59, 999);
    expect(nextMonthMs(lastMs)).toBe(lastMs + 1);
    expect(monthStartMs(lastMs + 1)).toBe(lastMs + 1);
  });
});

describe('limits divided among gateways', () => {
  const all = fc.record({
    requestsPerMinute: fc.option(fc.integer({ min: 1, max: 100 })),
    maxConcurrency: fc.option(fc.integer({ min: 1, max: 20 })),
    tokensPerMinute: fc.option(fc.integer({ min: 1, max: 10_000 })),
    monthlyTokenLimit: fc.option(fc.integer({ min: 1, max: 10_000 })),
  });
  const used = fc.record({ requests: fc.nat(120), tokens: fc.nat(30_000), monthTokens: fc.nat(12_000) });

  it('give no more in total than is left, or one each', () => {
    fc.assert(
      fc.property(all, used, fc.integer({ min: 1, max: 9 }), (of, use, gateways) => {
        const divided = divideLimits(of, gateways);
        const part = divideUse({ ...unusedKey(), ...use, windowStartMs: 1 }, of, gateways, 0);
        const pairs = [
          [of.requestsPerMinute, use.requests, divided.requestsPerMinute, part.requests],
          [of.tokensPerMinute, use.tokens, divided.tokensPerMinute, part.tokens],
          [of.monthlyTokenLimit, use.monthTokens, divided.monthlyTokenLimit, part.monthTokens],
        ] as const;
        for (const [limit, taken, most, counted] of pairs) {
          if (limit === null || most === null) continue;
          const [left, given] = [Math.max(0, limit - taken), Math.max(0, most - counted)];
          expect(counted).toBeGreaterThanOrEqual(0);
          expect(given * gateways).toBeLessThanOrEqual(Math.max(left, left > 0 ? gateways : 0));
          expect(given > 0).toBe(left > 0);
        }
        const slots = of.maxConcurrency === null ? null : Math.max(1, Math.floor(of.maxConcurrency / gateways));
        expect(divided.maxConcurrency).toBe(slots);
      }),
    );
  });

  it('divide debt too, so that it takes the same number of windows', () => {
    const of = { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: 100, monthlyTokenLimit: null };
    const use = { ...unusedKey(), windowStartMs: 1, tokens: 350 };
    const part = divideUse(use, of, 2, 0);
    const divided = divideLimits(of, 2);
    for (const minutes of [1, 2, 3, 4]) {
      const [whole, half] = [{ ...use }, { ...part }];
      rollWindow(whole, of, 1 + minutes * windowMs);
      rollWindow(half, divided, 1 + minutes * windowMs);
      expect(half.tokens).toBe(Math.ceil(whole.tokens / 2));
    }
  });
});

it('ends a window that starts in the future within a minute', () => {
  const of = { requestsPerMinute: 1, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null };
  const use = { ...unusedKey(), windowStartMs: 5_000_000, requests: 1 };
  rollWindow(use, of, 1_000_000);
  expect(use).toMatchObject({ windowStartMs: 1_000_000, requests: 1 });
  rollWindow(use, of, 1_000_000 + windowMs);
  expect(use).toMatchObject({ windowStartMs: 0, requests: 0 });
});

describe('the limits of a model', () => {
  it('return the shortest wait for a day that ended since it was counted', () => {
    const limits = { requestsPerMinute: null, tokensPerMinute: null, requestsPerDay: 1 };
    const dayMs = Date.UTC(2026, 4, 17);
    const endMs = nextDayMs(dayMs);
    const use = { ...unusedModel(), dayMs, dayRequests: 1 };
    const before = { nowMs: endMs - 5, hereMs: endMs - 5 };
    expect(refuseByModel(use, limits, 1, before)?.retryAfterMs).toBe(5);
    const after = { nowMs: endMs + 5, hereMs: endMs + 5 };
    expect(refuseByModel(use, limits, 1, after)).toMatchObject({ retryAfterMs: 1, view: { resetAtMs: endMs } });
    expect(viewModel(use, limits, after).requests).toMatchObject({ remaining: 0, resetAtMs: endMs });
  });
});
