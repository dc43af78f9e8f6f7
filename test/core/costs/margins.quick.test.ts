import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { computeMargin, type MarginInput } from '#core/costs/margins.ts';

const hour = 3_600_000n;
const usd = 10n ** 12n;
const input: MarginInput = {
  revenuePicoUsd: 30n * usd,
  tokens: { input: 20_000_000n, cachedInput: 10_000_000n, output: 10_000_000n },
  prices: { input: 500_000n, cachedInput: 250_000n, output: 1_750_000n },
  held: {
    heldGpuMs: 20n * hour,
    startingGpuMs: 1n * hour,
    unratedGpuMs: 0n,
    costPicoUsd: 40n * usd,
    unconverted: [],
  },
  busyGpuMs: 9n * hour,
};
const unconverted = [{ currency: 'EUR', amount: '1.00', amountExact: '1.0000000000' }];

describe('the margin of a model', () => {
  it.each([
    ['hours have no price', { unratedGpuMs: 1n }],
    ['a price is in a currency without a rate', { unconverted }],
  ])('is null when %s', (_, more) => {
    const margin = computeMargin({ ...input, held: { ...input.held, ...more } as MarginInput['held'] });
    expect(margin).toMatchObject({
      isComplete: false,
      costPicoUsd: 40n * usd,
      marginPicoUsd: null,
      marginRatio: null,
      costPerMillionTokensPicoUsd: null,
      breakEven: null,
    });
  });

  it('is revenue less replica cost, with GPU-hours and their shares', () => {
    expect(computeMargin(input)).toEqual({
      revenuePicoUsd: 30n * usd,
      costPicoUsd: 40n * usd,
      isComplete: true,
      marginPicoUsd: -10n * usd,
      marginRatio: -0.333333,
      gpuHours: { held: 20, busy: 9, idle: 10, starting: 1, unrated: 0 },
      shares: { busy: 0.45, idle: 0.5, starting: 0.05 },
      costPerMillionTokensPicoUsd: usd,
      // 10 + 2.50 + 17.50 USD were paid for what cost 40.
      breakEven: { factor: 1.333334, input: 666_667n, cachedInput: 333_334n, output: 2_333_334n },
    });
  });

  it('is the revenue of a model without replicas, and minus the cost of an unused model', () => {
    expect(computeMargin({ ...input, held: null })).toMatchObject({
      marginPicoUsd: 30n * usd,
      shares: null,
      costPerMillionTokensPicoUsd: 0n,
    });
    const unused = { ...input, revenuePicoUsd: 0n, tokens: { input: 0n, cachedInput: 0n, output: 0n }, busyGpuMs: 0n };
    expect(computeMargin(unused)).toMatchObject({
      marginPicoUsd: -40n * usd,
      marginRatio: null,
      costPerMillionTokensPicoUsd: null,
      breakEven: null,
    });
  });

  it('breaks even at one price for every token when the model is free', () => {
    const free = computeMargin({ ...input, prices: { input: 0n, cachedInput: 0n, output: 0n } });
    expect(free.breakEven).toEqual({
      factor: null,
      input: usd / 10n ** 6n,
      cachedInput: usd / 10n ** 6n,
      output: usd / 10n ** 6n,
    });
    expect(computeMargin({ ...input, prices: null }).breakEven).toEqual(free.breakEven);
  });

  const count = fc.bigInt({ min: 0n, max: 10n ** 12n });
  const price = fc.bigInt({ min: 0n, max: 10n ** 9n });
  const ms = fc.bigInt({ min: 0n, max: 10n ** 12n });

  it('is 0 at the break-even price, except for rounding up', () => {
    const tokens = fc.record({ input: count, cachedInput: count, output: count });
    const prices = fc.record({ input: price, cachedInput: price, output: price });
    fc.assert(
      fc.property(tokens, prices, fc.bigInt({ min: 0n, max: 10n ** 20n }), (used, today, costPicoUsd) => {
        const held = { heldGpuMs: 1n, startingGpuMs: 0n, unratedGpuMs: 0n, costPicoUsd, unconverted: [] };
        const margin = computeMargin({ ...input, tokens: used, prices: today, held });
        const all = used.input + used.cachedInput + used.output;
        expect(margin.breakEven === null).toBe(all === 0n);
        if (margin.breakEven === null) return;
        const { input: a, cachedInput: b, output: c } = margin.breakEven;
        const earned = used.input * a + used.cachedInput * b + used.output * c;
        expect(earned >= costPicoUsd).toBe(true);
        expect(earned - costPicoUsd <= all).toBe(true);
      }),
    );
  });

  it('divides held GPU time into busy, idle and starting without a remainder', () => {
    fc.assert(
      fc.property(ms, ms, ms, (heldGpuMs, startingGpuMs, busyGpuMs) => {
        const held = { heldGpuMs, startingGpuMs, unratedGpuMs: 0n, costPicoUsd: 0n, unconverted: [] };
        const { shares } = computeMargin({ ...input, held, busyGpuMs });
        expect(shares === null).toBe(heldGpuMs === 0n);
        if (shares === null) return;
        const millionths = Object.values(shares).map((share) => Math.round(share * 1e6));
        expect(millionths.every((share) => share >= 0)).toBe(true);
        expect(millionths.reduce((sum, share) => sum + share, 0)).toBe(1e6);
      }),
    );
  });
});
