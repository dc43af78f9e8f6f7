import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type BalanceHour, findUnexplained } from '#core/reconcile/balance.ts';

const hour = (counted: number, expected: number, more: Partial<BalanceHour> = {}): BalanceHour => ({
  counted,
  expected,
  carryMax: 0,
  moreMax: 0,
  fewerMax: 0,
  ...more,
});

describe('the unexplained tokens of an engine', () => {
  it.each([
    ['one token more', [hour(11, 10)], [1]],
    ['one token fewer', [hour(9, 10)], [-1]],
    ['more than was under way at an hour’s end', [hour(4, 10, { carryMax: 5 }), hour(6, 0)], [-1, 1]],
    ['tokens that were carried and never came', [hour(5, 10, { carryMax: 5 }), hour(0, 0)], [0, -5]],
    ['tokens that come without having been carried', [hour(10, 10, { carryMax: 5 }), hour(3, 0)], [0, 3]],
    ['more than a crash may have lost', [hour(0, 10, { fewerMax: 9 })], [-1]],
    ['a later hour, after one without a bound', [hour(50, 10, { moreMax: Infinity }), hour(11, 10)], [0, 1]],
  ])('are reported for %s', (_, hours, unexplained) => {
    expect(findUnexplained(hours, 0)).toEqual(unexplained);
  });

  it.each([
    ['the same on both sides', [hour(10, 10), hour(3, 3)]],
    ['requests that went on into the next hour', [hour(6, 10, { carryMax: 5 }), hour(7, 3)]],
    ['through two hours', [hour(1, 10, { carryMax: 10 }), hour(4, 0, { carryMax: 10 }), hour(5, 0)]],
    ['what a crash lost', [hour(4, 10, { fewerMax: 6 }), hour(3, 3)]],
    ['what was carried into a crash', [hour(5, 10, { carryMax: 5 }), hour(0, 0, { fewerMax: 5 })]],
    ['what a gateway that died had under way', [hour(90, 10, { moreMax: Infinity })]],
  ])('are 0 for %s', (_, hours) => {
    expect(findUnexplained(hours, 0)).toEqual(hours.map(() => 0));
  });

  it('are 0 for requests that were running at the start of the span, up to their tokens', () => {
    expect(findUnexplained([hour(5, 0)], 5)).toEqual([0]);
    expect(findUnexplained([hour(6, 0)], 5)).toEqual([1]);
  });

  /** Tokens of one request in each hour from its first one on. */
  const request = fc.record({
    first: fc.nat({ max: 5 }),
    tokens: fc.array(fc.nat({ max: 50 }), { minLength: 1, maxLength: 3 }),
  });
  const requests = fc.array(request, { maxLength: 30 });
  const hoursOf = (all: readonly { readonly first: number; readonly tokens: readonly number[] }[]): BalanceHour[] =>
    Array.from({ length: 8 }, (_, at) => {
      const sum = (read: (one: (typeof all)[number]) => number): number =>
        all.reduce((total, one) => total + read(one), 0);
      const whole = (tokens: readonly number[]): number => tokens.reduce((a, b) => a + b, 0);
      return hour(
        sum(({ first, tokens }) => tokens[at - first] ?? 0),
        sum(({ first, tokens }) => (first === at ? whole(tokens) : 0)),
        { carryMax: sum(({ first, tokens }) => (first <= at && first + tokens.length - 1 > at ? whole(tokens) : 0)) },
      );
    });

  it('are 0 for any set of requests', () => {
    fc.assert(
      fc.property(requests, (all) => {
        expect(findUnexplained(hoursOf(all), 0)).toEqual(Array.from({ length: 8 }, () => 0));
      }),
    );
  });

  it('are reported when the engine counted more than all requests', () => {
    fc.assert(
      fc.property(requests, fc.nat({ max: 7 }), fc.integer({ min: 1, max: 100 }), (all, at, more) => {
        const hours = hoursOf(all).map((one, index) => (index === at ? { ...one, counted: one.counted + more } : one));
        const unexplained = findUnexplained(hours, 0);
        expect(unexplained.reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
      }),
    );
  });
});
