import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseWindow, type Window, type WindowQuery } from '#core/costs/window.ts';
import { findZone, startOfDayMs } from '#core/costs/zone.ts';

const hourMs = 3_600_000;
const zones = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  'Asia/Kolkata',
  'Australia/Lord_Howe',
  'America/Havana',
  'Africa/Cairo',
  'Asia/Beirut',
  'Pacific/Apia',
  'Pacific/Chatham',
  'America/St_Johns',
  'Africa/Casablanca',
];

function windowOf(query: WindowQuery): Window {
  const result = parseWindow(query);
  if (result.kind !== 'window') throw new Error(JSON.stringify(result.problems));
  return result.window;
}

describe('a report window', () => {
  it.each<[WindowQuery, Record<string, string>]>([
    [{}, { month: 'is required unless from and to are set' }],
    [{ from: '2026-03-01' }, { to: 'is required together with from' }],
    [{ to: '2026-03-01' }, { from: 'is required together with to' }],
    [{ month: '2026-03', from: '2026-03-01' }, { month: 'must not be used together with from or to' }],
    [{ month: '2026-13' }, { month: 'must be a month such as 2026-03' }],
    [{ month: '9999-12' }, { month: 'must be between the years 1970 and 9999 in UTC' }],
    [{ month: '2026-3' }, { month: 'must be a month such as 2026-03' }],
    [{ month: '2026-03-01' }, { month: 'must be a month such as 2026-03' }],
    [{ month: '2026-03', tz: 'Mars/Olympus' }, { tz: 'must be an IANA time zone name such as Europe/Berlin' }],
    [{ month: '2026-03', tz: '' }, { tz: 'must be an IANA time zone name such as Europe/Berlin' }],
    [{ from: '2026-03-02', to: '2026-03-02' }, { to: 'must be later than from' }],
    [{ from: '2026-03-02', to: '2026-03-01' }, { to: 'must be later than from' }],
    [{ from: '2026-01-01', to: '2027-02-06' }, { to: 'must be at most 400 days after from' }],
    [{ from: '2026-02-30', to: '2026-03-05' }, { from: expect.stringContaining('must be a date such as') as string }],
    [
      { from: '2026-03-01T00:00:00', to: '2026-03-05T00:00:00Z' },
      { from: expect.stringContaining('an RFC 3339 time with an offset') as string },
    ],
  ])('is rejected as %j', (query, problems) => {
    const result = parseWindow(query);
    if (result.kind !== 'problems') throw new Error('it was taken');
    expect(Object.fromEntries(result.problems.map(({ field, message }) => [field, message]))).toEqual(problems);
  });

  it.each(['Europe/Kyiv', 'Europe/Kiev', 'Asia/Calcutta'])('keeps the requested name of its zone: %s', (tz) => {
    expect(windowOf({ month: '2026-03', tz }).tz).toBe(tz);
  });

  it('reports all problems at once', () => {
    const result = parseWindow({ from: 'yesterday', to: '2026-02-31', tz: 'Berlin' });
    if (result.kind !== 'problems') throw new Error('it was taken');
    expect(result.problems.map(({ field }) => field)).toEqual(['tz', 'from', 'to']);
  });

  it.each<[WindowQuery, string, string]>([
    [{ month: '2026-12' }, '2026-12-01T00:00:00.000Z', '2027-01-01T00:00:00.000Z'],
    [{ month: '2026-03', tz: 'Europe/Berlin' }, '2026-02-28T23:00:00.000Z', '2026-03-31T22:00:00.000Z'],
    [
      { from: '2026-03-01', to: '2026-03-02', tz: 'Asia/Kolkata' },
      '2026-02-28T18:30:00.000Z',
      '2026-03-01T18:30:00.000Z',
    ],
    [
      { from: '2026-03-01T09:30:00+02:00', to: '2026-03-01T09:30:00.5Z', tz: 'Asia/Tokyo' },
      '2026-03-01T07:30:00.000Z',
      '2026-03-01T09:30:00.500Z',
    ],
    [{ from: '2025-01-01', to: '2026-02-05' }, '2025-01-01T00:00:00.000Z', '2026-02-05T00:00:00.000Z'],
    // The clock goes back within them: 400 days of 24 hours and one hour more.
    [
      { from: '2025-10-01', to: '2026-11-05', tz: 'Europe/Berlin' },
      '2025-09-30T22:00:00.000Z',
      '2026-11-04T23:00:00.000Z',
    ],
  ])('for %j reaches from %s to %s', (query, from, to) => {
    const { fromMs, toMs } = windowOf(query);
    expect([fromMs, toMs].map((ms) => new Date(ms).toISOString())).toEqual([from, to]);
  });

  it('uses the canonical case of its zone name, and UTC by default', () => {
    expect(windowOf({ month: '2026-03', tz: 'europe/berlin' }).tz).toBe('Europe/Berlin');
    expect(windowOf({ month: '2026-03' }).tz).toBe('UTC');
  });

  it('begins where the month before ends, and twelve months are one year', () => {
    fc.assert(
      fc.property(fc.constantFrom(...zones), fc.integer({ min: 1990, max: 2060 }), (tz, year) => {
        const months = Array.from({ length: 12 }, (_, index) =>
          windowOf({ month: `${year}-${String(index + 1).padStart(2, '0')}`, tz }),
        );
        const all = windowOf({ from: `${year}-01-01`, to: `${year + 1}-01-01`, tz });
        expect(months[0]?.fromMs).toBe(all.fromMs);
        expect(months[11]?.toMs).toBe(all.toMs);
        for (const [index, month] of months.slice(1).entries()) expect(month.fromMs).toBe(months[index]?.toMs);
      }),
      { numRuns: 40 },
    );
  });
});

describe('a day', () => {
  it('begins at the first moment when the clocks of its zone show it', () => {
    fc.assert(
      fc.property(fc.constantFrom(...zones), fc.integer({ min: 0, max: 30_000 }), (tz, days) => {
        const zone = findZone(tz);
        if (zone === null) throw new Error(tz);
        const midnight = days * 24 * hourMs;
        const date = new Date(midnight);
        const day = { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate() };
        const start = startOfDayMs(zone, day);
        expect(zone.clockMs(start)).toBeGreaterThanOrEqual(midnight);
        expect(zone.clockMs(start - 1)).toBeLessThan(midnight);
        for (let hours = 1; hours <= 30; hours += 1) {
          expect(zone.clockMs(start - hours * hourMs)).toBeLessThan(midnight);
        }
      }),
      { numRuns: 150 },
    );
  });

  it.each([
    ['America/Havana', { year: 2026, month: 11, day: 1 }, '2026-11-01T04:00:00.000Z', 'twice'],
    [
      'America/St_Johns',
      { year: 2003, month: 10, day: 26 },
      '2003-10-26T02:30:00.000Z',
      'twice, a minute before clocks go back',
    ],
    ['Asia/Beirut', { year: 2026, month: 3, day: 29 }, '2026-03-28T22:00:00.000Z', 'never'],
    ['America/Sao_Paulo', { year: 2018, month: 11, day: 4 }, '2018-11-04T03:00:00.000Z', 'never'],
    ['Pacific/Apia', { year: 2011, month: 12, day: 30 }, '2011-12-30T10:00:00.000Z', 'never, for the day was left out'],
  ])('begins at the right time in %s although midnight comes %4$s', (tz, day, expected) => {
    const zone = findZone(tz);
    if (zone === null) throw new Error(tz);
    expect(new Date(startOfDayMs(zone, day)).toISOString()).toBe(expected);
  });
});
