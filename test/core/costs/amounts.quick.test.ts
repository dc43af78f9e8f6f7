import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  convert,
  formatExact,
  formatFixed,
  formatPrice,
  hoursOf,
  parsePrice,
  priceOf,
  roundExact,
  roundHalfAway,
  toMicroHours,
} from '#core/costs/amount.ts';
import { currencies, findCurrency } from '#core/costs/currencies.ts';

describe('a price', () => {
  it.each(['', '-1', '1,5', '1e3', '0x10', ' 1', '1.', '.5', '0.12345678901', '10000000000', 'NaN'])(
    'is not parsed from %j',
    (text) => {
      expect(parsePrice(text)).toBeNull();
    },
  );

  it('is parsed and formatted without loss', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 20n - 1n }), (scaled) => {
        expect(parsePrice(formatPrice(scaled))).toBe(scaled);
      }),
    );
  });
});

describe('an amount', () => {
  it('is rounded to the nearest, halves away from zero', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }),
        fc.bigInt({ min: 1n, max: 10n ** 12n }),
        (a, b) => {
          const rounded = roundHalfAway(a, b);
          const distance = (value: bigint): bigint => (value < 0n ? -value : value);
          const rest = distance(rounded * b - a);
          expect(rest * 2n <= b).toBe(true);
          expect(rest * 2n < b || distance(rounded * b) > distance(a)).toBe(true);
        },
      ),
    );
  });

  it('is exact, also after a conversion', () => {
    const scaled = fc.bigInt({ min: 0n, max: 10n ** 20n - 1n });
    const ms = fc.bigInt({ min: 0n, max: 10n ** 16n });
    fc.assert(
      fc.property(fc.tuple(ms, ms), fc.tuple(scaled, scaled), scaled, ([nodeMs, gpuMs], [nodeHour, gpuHour], rate) => {
        const native = priceOf({ nodeMs, gpuShareMs: gpuMs * 28n }, { nodeHour, gpuHour });
        const numerator = (nodeMs * nodeHour + gpuMs * gpuHour) * rate;
        const denominator = 3_600_000n * 10n ** 20n;
        expect(roundExact(convert(native, rate), 2)).toBe(roundHalfAway(numerator * 100n, denominator));
      }),
    );
  });

  it.each([
    [5n, 2, '0.05'],
    [13_000n, 2, '130.00'],
    [-5n, 2, '-0.05'],
    [2161n, 0, '2161'],
    [0n, 3, '0.000'],
  ])('is formatted with all decimal places: %d in 10^-%d', (value, digits, text) => {
    expect(formatFixed(value, digits)).toBe(text);
  });

  it('is 0 when the rate card has no such price', () => {
    expect(formatExact(priceOf({ nodeMs: 3_600_000n, gpuShareMs: 0n }, { nodeHour: null, gpuHour: 5n }))).toBe(
      '0.0000000000',
    );
  });

  it('has six decimal places for hours', () => {
    expect(
      [1n, 1000n, 1_200_000n, 3_600_000n, 702_720_000n * 3_600_000n].map((ms) => hoursOf(toMicroHours(ms))),
    ).toEqual([0, 0.000278, 0.333333, 1, 702_720_000]);
  });
});

describe('the currency table', () => {
  const codes = (minorUnits: number): string =>
    currencies
      .filter((currency) => currency.minorUnits === minorUnits)
      .map(({ code }) => code)
      .join(' ');

  it('has every code once, in alphabetical order, with a name and a symbol', () => {
    expect(currencies.map(({ code }) => code)).toEqual([...new Set(currencies.map(({ code }) => code))].toSorted());
    for (const { code, name, symbol } of currencies) {
      expect(code).toMatch(/^[A-Z]{3}$/);
      expect(name).not.toBe('');
      expect(symbol).not.toBe('');
    }
  });

  it('has the minor units of ISO 4217', () => {
    expect(codes(0)).toBe('BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF');
    expect(codes(3)).toBe('BHD IQD JOD KWD LYD OMR TND');
    expect(codes(4)).toBe('CLF UYW');
    expect(currencies).toHaveLength(165);
  });

  it('differs from Intl only where Intl follows the use of coins', () => {
    const intlDigits = (code: string): number | undefined =>
      new Intl.NumberFormat('en', { style: 'currency', currency: code }).resolvedOptions().maximumFractionDigits;
    const different = currencies.filter(({ code, minorUnits }) => intlDigits(code) !== minorUnits);
    const byCoins = 'AFN ALL COP HUF IDR IQD IRR KPW LAK LBP MGA MMK PKR SOS SYP YER'.split(' ');
    expect(different.map(({ code }) => code).filter((code) => !byCoins.includes(code))).toEqual([]);
  });

  it('contains every currency of Intl except former ones and units that are not billed in', () => {
    const unknown = Intl.supportedValuesOf('currency').filter((code) => findCurrency(code) === null);
    const former = ['ANG', 'BGN', 'CUC', 'HRK', 'SLL', 'XDR', 'XSU', 'ZWL'];
    expect(unknown.filter((code) => !former.includes(code))).toEqual([]);
  });

  it.each(['XXX', 'XTS', 'XAU', 'XAG', 'XPT', 'XPD', 'XDR', 'DEM', 'BGN', '', 'EURO', 'EU'])(
    'does not contain %j',
    (code) => {
      expect(findCurrency(code)).toBeNull();
    },
  );

  it('is searched case-insensitively', () => {
    expect(findCurrency('eur')).toEqual({ code: 'EUR', name: 'Euro', symbol: '€', minorUnits: 2 });
  });
});
