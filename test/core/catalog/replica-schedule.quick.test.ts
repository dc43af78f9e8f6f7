import { describe, expect, it } from 'vitest';
import { type ScheduleEntry, scheduleStateAt } from '#core/catalog/catalog.ts';

const entry = (cron: string, timezone: string, [min, max]: readonly [number, number] = [0, 1]): ScheduleEntry => {
  return { cron, timezone, min, max };
};
const at = (text: string): number => Date.parse(text);
const iso = (ms: number): string | null => (Number.isFinite(ms) ? new Date(ms).toISOString().slice(0, 16) : null);

/** All times at which an entry takes effect between two times, found in steps of five minutes. */
function timesOf(cron: string, timezone: string, from: string, to: string): (string | null)[] {
  const found = new Set<string | null>();
  for (let ms = at(from); ms < at(to); ms += 300_000) {
    // A list of its own for each step: what is remembered of another must not matter.
    const { sinceMs } = scheduleStateAt([entry(cron, timezone)], ms);
    if (sinceMs >= at(from)) found.add(iso(sinceMs));
  }
  return [...found];
}

describe('the entry of a schedule in effect', () => {
  const day = entry('0 8 * * 1-5', 'Europe/Berlin', [2, 4]);
  const night = entry('0 20 * * 1-5', 'Europe/Berlin', [0, 1]);

  it.each([
    ['2026-11-27T06:59:59.999Z', night, '2026-11-26T19:00', day, '2026-11-27T07:00'],
    ['2026-11-27T07:00:00.000Z', day, '2026-11-27T07:00', night, '2026-11-27T19:00'],
    ['2026-11-27T12:34:56.789Z', day, '2026-11-27T07:00', night, '2026-11-27T19:00'],
    // A weekend, on which no entry has a time.
    ['2026-11-29T12:00:00.000Z', night, '2026-11-27T19:00', day, '2026-11-30T07:00'],
  ])('is found at %s from the time only', (...[now, current, since, next, until]) => {
    const state = scheduleStateAt([day, night], at(now));
    expect([state.entry, iso(state.sinceMs), state.next, iso(state.untilMs)]).toEqual([current, since, next, until]);
  });

  it('stays the same when it is asked for again, forward and backward', () => {
    const schedule = [day, night];
    const times = ['2026-11-27T12:00Z', '2026-11-27T20:00Z', '2026-11-27T12:00Z', '2026-12-05T12:00Z'].map(at);
    expect(times.map((ms) => scheduleStateAt(schedule, ms).entry)).toEqual([day, night, day, night]);
  });

  it('is none before the first time of an entry, and for an empty schedule', () => {
    expect(scheduleStateAt([], 0)).toMatchObject({ entry: null, next: null, untilMs: Infinity });
    // Before years in which croner looks.
    const state = scheduleStateAt([day], -70_000_000_000_000);
    expect([state.entry, state.next]).toEqual([null, day]);
  });

  it('is the last in the file of those with the same time', () => {
    const weekday = entry('0 8 * * 1-5', 'Europe/Berlin', [3, 3]);
    const every = entry('0 8 * * *', 'Europe/Berlin', [1, 1]);
    // Friday; Saturday is the next day on which the other one takes effect.
    const state = scheduleStateAt([every, weekday], at('2026-11-27T12:00Z'));
    expect([state.entry, state.next, iso(state.untilMs)]).toEqual([weekday, every, '2026-11-28T07:00']);
    expect(scheduleStateAt([weekday, every], at('2026-11-27T12:00Z'))).toMatchObject({ entry: every, next: null });
  });

  it('has no next entry when it is the only one', () => {
    expect(scheduleStateAt([day], at('2026-11-27T12:00Z'))).toMatchObject({
      entry: day,
      next: null,
      untilMs: Infinity,
    });
  });
});

describe('a time of a schedule', () => {
  it.each([
    // The clock skips 02:00 to 03:00: the entry takes effect right after the gap.
    ['30 2 * * *', 'Europe/Berlin', '2026-03-29', ['2026-03-29T01:00']],
    ['30 2 * * *', 'America/New_York', '2026-03-08', ['2026-03-08T07:00']],
    ['15,45 2 * * *', 'Europe/Berlin', '2026-03-29', ['2026-03-29T01:00']],
    // The clock shows 02:00 to 03:00 twice: the first one only.
    ['30 2 * * *', 'Europe/Berlin', '2026-10-25', ['2026-10-25T00:30']],
    ['30 1 * * *', 'America/New_York', '2026-11-01', ['2026-11-01T05:30']],
    ['30 2,14 * * *', 'Europe/Berlin', '2026-10-25', ['2026-10-25T00:30', '2026-10-25T13:30']],
    // Times after the change.
    ['0 8 * * *', 'Europe/Berlin', '2026-03-29', ['2026-03-29T06:00']],
    ['0 8 * * *', 'Europe/Berlin', '2026-10-25', ['2026-10-25T07:00']],
    ['0 8 * * *', 'America/New_York', '2026-11-01', ['2026-11-01T13:00']],
    // A zone without a change, with half an hour.
    ['0 8 * * *', 'Asia/Kolkata', '2026-03-29', ['2026-03-29T02:30']],
  ])('%s in %s on %s', (cron, timezone, date, expected) => {
    expect(timesOf(cron, timezone, `${date}T00:00Z`, `${date}T23:59Z`)).toEqual(expected);
  });

  it('comes in each of both hours that the clock repeats, with a wildcard for the hour', () => {
    const times = timesOf('0 * * * *', 'Europe/Berlin', '2026-10-24T23:30Z', '2026-10-25T03:30Z');
    expect(times).toEqual(['2026-10-25T00:00', '2026-10-25T01:00', '2026-10-25T02:00', '2026-10-25T03:00']);
  });

  it('comes next exactly when it is in effect, for two zones over a year', () => {
    const schedule = [entry('30 2 * * *', 'Europe/Berlin'), entry('30 1 * * 0', 'America/New_York', [1, 1])];
    let ms = at('2026-01-01T00:00Z');
    let changes = 0;
    while (ms < at('2027-01-01T00:00Z')) {
      const { next, untilMs, entry: current } = scheduleStateAt([...schedule], ms);
      expect(scheduleStateAt([...schedule], untilMs - 1)).toMatchObject({ entry: current });
      expect(scheduleStateAt([...schedule], untilMs)).toMatchObject({ entry: next, sinceMs: untilMs });
      ms = untilMs;
      changes += 1;
    }
    // Both change once a week.
    expect(changes).toBeGreaterThan(100);
  });
});
