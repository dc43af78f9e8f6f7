import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DatedRate, endRate, placeRate } from '#core/costs/dated-rates.ts';
import { type DatedConversion, priceBorders, type PricedCard, type PriceList, pricingAt } from '#core/costs/pricing.ts';

const nowMs = 100;
const good = { fromMs: null, toMs: null, retroactive: false };
const rate = (fromMs: number, toMs: number | null, id = `${fromMs}`): DatedRate => ({ id, fromMs, toMs });

describe('a new rate', () => {
  it.each([
    ['begins in the past', { ...good, fromMs: nowMs - 1 }, { kind: 'in_the_past', nowMs }],
    ['ends as it begins', { ...good, toMs: nowMs }, { kind: 'empty' }],
    ['ends before it begins', { ...good, fromMs: 300, toMs: 200 }, { kind: 'empty' }],
  ])('is rejected when it %s', (_, request, expected) => {
    expect(placeRate([], request, nowMs)).toEqual(expected);
  });

  it.each([
    ['the end of one that ends', [rate(50, 150)], { ...good, fromMs: 149 }],
    ['one that begins later', [rate(200, null)], good],
    ['one that begins at the same moment', [rate(100, null)], good],
    ['two of them', [rate(50, 120), rate(120, null)], good],
  ])('is rejected when it overlaps %s', (_, series, request) => {
    expect(placeRate(series, request, nowMs)).toEqual({ kind: 'overlap', with: series[0] });
  });

  it('can begin in the past with retroactive: true', () => {
    expect(placeRate([], { ...good, fromMs: 10, retroactive: true }, nowMs)).toMatchObject({
      kind: 'placed',
      fromMs: 10,
    });
  });

  it('begins now by default, and ends the open rate before it', () => {
    const former = rate(50, null);
    expect(placeRate([rate(10, 50), former], good, nowMs)).toEqual({ kind: 'placed', fromMs: nowMs, ended: former });
  });

  it('fits into a gap, and beside a rate that ended as it began', () => {
    const series = [rate(50, 150), rate(160, 160), rate(200, null)];
    const request = { ...good, fromMs: 150, toMs: 200 };
    expect(placeRate(series, request, nowMs)).toEqual({ kind: 'placed', fromMs: 150, ended: null });
  });

  it('never overlaps another rate, after any additions and ends', () => {
    const request = fc.record({
      fromMs: fc.option(fc.integer({ min: 0, max: 40 })),
      toMs: fc.option(fc.integer({ min: 0, max: 40 })),
      retroactive: fc.boolean(),
    });
    const step = fc.oneof(
      request.map((wanted) => ({ add: wanted, end: null })),
      fc
        .record({ index: fc.nat(5), atMs: fc.integer({ min: 0, max: 40 }), retroactive: fc.boolean() })
        .map((end) => ({ add: null, end })),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const series: DatedRate[] = [];
        const setEnd = (index: number, toMs: number): void => {
          const old = series[index];
          if (old !== undefined) series[index] = { ...old, toMs };
        };
        for (const { add, end } of steps) {
          if (add !== null) {
            const placed = placeRate(series, add, 20);
            if (placed.kind !== 'placed') continue;
            if (placed.ended !== null) setEnd(series.indexOf(placed.ended), placed.fromMs);
            series.push(rate(placed.fromMs, add.toMs, String(series.length)));
          } else if (series[end.index] !== undefined) {
            const ending = endRate(series[end.index] as DatedRate, end, 20);
            if (ending.kind === 'ends') setEnd(end.index, ending.toMs);
          }
          for (let moment = 0; moment <= 45; moment += 1) {
            const holding = series.filter(({ fromMs, toMs }) => fromMs <= moment && moment < (toMs ?? 99));
            expect(holding.length).toBeLessThanOrEqual(1);
          }
        }
      }),
    );
  });
});

describe('the end of a rate', () => {
  it.each([
    ['in the past', rate(10, null), { atMs: 99, retroactive: false }, { kind: 'in_the_past', nowMs }],
    ['of one that has ended', rate(10, 50), { atMs: null, retroactive: true }, { kind: 'already_ended', toMs: 50 }],
    ['later than it ends', rate(10, 150), { atMs: 151, retroactive: false }, { kind: 'already_ended', toMs: 150 }],
  ])('is rejected: %s', (_, old, request, expected) => {
    expect(endRate(old, request, nowMs)).toEqual(expected);
  });

  it.each([
    ['now', rate(10, null), { atMs: null, retroactive: false }, nowMs],
    ['earlier than it would', rate(10, 150), { atMs: 120, retroactive: false }, 120],
    ['as it begins, where it has not begun', rate(200, null), { atMs: null, retroactive: false }, 200],
    ['in the past, when marked retroactive', rate(10, null), { atMs: 5, retroactive: true }, 10],
  ])('can be %s', (_, old, request, toMs) => {
    expect(endRate(old, request, nowMs)).toEqual({ kind: 'ends', toMs });
  });
});

describe('the price of usage', () => {
  const card = (currency: string, more: Partial<PricedCard> = {}): PricedCard => ({
    id: `${currency}-card`,
    hardwareProfile: 'h100',
    currency,
    nodeHour: 10n,
    gpuHour: 1n,
    fromMs: 0,
    toMs: null,
    ...more,
  });
  const conversion = (from: string, to: string, more: Partial<DatedConversion> = {}): DatedConversion => ({
    id: `${from}-${to}`,
    from,
    to,
    rate: 1n,
    fromMs: 0,
    toMs: null,
    ...more,
  });
  const list = (cards: PricedCard[], conversions: DatedConversion[] = []): PriceList => ({
    cards,
    conversions,
    defaultCurrency: 'USD',
  });
  const use = { source: 'node', hardwareProfile: 'h100', billingCurrency: null } as const;

  it.each([
    ['no card', list([]), use, 'no_rate_card'],
    ['a card of another profile', list([card('USD', { hardwareProfile: 'a100' })]), use, 'no_rate_card'],
    ['a card that ends at that moment', list([card('USD', { toMs: 50 })]), use, 'no_rate_card'],
    ['a card that begins a moment later', list([card('USD', { fromMs: 51 })]), use, 'no_rate_card'],
    ['cards in two other currencies', list([card('CHF'), card('GBP')]), use, 'ambiguous_rate'],
    [
      'a card for nodes only, for a replica',
      list([card('USD', { gpuHour: null })]),
      { ...use, source: 'replica' as const },
      'no_gpu_price',
    ],
  ])('is unknown with %s', (_, prices, what, reason) => {
    expect(pricingAt(prices, what, 50)).toMatchObject({ rated: false, reason });
  });

  it.each([
    ['the organization’s', ['EUR', 'USD', 'GBP'], 'EUR', 'EUR'],
    ['the platform’s, without one in the organization’s', ['GBP', 'USD'], 'EUR', 'USD'],
    ['the platform’s, where the organization has chosen none', ['GBP', 'USD'], null, 'USD'],
    ['the only one there is', ['GBP'], 'EUR', 'GBP'],
  ])('is that of the rate card in %s currency', (_, currencies, billingCurrency, expected) => {
    const pricing = pricingAt(list(currencies.map((one) => card(one))), { ...use, billingCurrency }, 50);
    expect(pricing).toMatchObject({ rated: true, card: { currency: expected } });
  });

  it.each([
    ['the same currency', 'USD', [conversion('USD', 'EUR')], { status: 'none', conversion: null, wanted: null }],
    [
      'a rate of that direction',
      'EUR',
      [conversion('USD', 'EUR')],
      { status: 'converted', conversion: { id: 'USD-EUR' } },
    ],
    ['the inverse only', 'EUR', [conversion('EUR', 'USD')], { status: 'skipped_missing_rate', wanted: 'EUR' }],
    [
      'a way over a third currency only',
      'EUR',
      [conversion('USD', 'GBP'), conversion('GBP', 'EUR')],
      { status: 'skipped_missing_rate' },
    ],
    ['a rate that has ended', 'EUR', [conversion('USD', 'EUR', { toMs: 50 })], { status: 'skipped_missing_rate' }],
    ['a rate that begins then', 'EUR', [conversion('USD', 'EUR', { fromMs: 50 })], { status: 'converted' }],
  ])('is converted only with a rate for that direction and time: %s', (_, billingCurrency, conversions, expected) => {
    expect(pricingAt(list([card('USD')], conversions), { ...use, billingCurrency }, 50)).toMatchObject(expected);
  });

  it('changes only at the begins and ends of rate cards and rates within the window', () => {
    const prices = list(
      [card('USD', { fromMs: 10, toMs: 60 }), card('EUR', { fromMs: 60, toMs: null })],
      [conversion('USD', 'EUR', { fromMs: 5, toMs: 80 }), conversion('EUR', 'USD', { fromMs: 40, toMs: 100 })],
    );
    expect(priceBorders(prices, [], { fromMs: 20, toMs: 100 })).toEqual([0, 20, 40, 60]);
    expect(priceBorders(prices, [20, 50, 60, 100], { fromMs: 20, toMs: 100 })).toEqual([0, 20, 30, 40, 60]);
    expect(priceBorders(list([]), [], { fromMs: 20, toMs: 100 })).toEqual([0]);
  });
});
