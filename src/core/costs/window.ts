import { parseMoment } from '#base/timestamps.ts';
import { addMonths, type Day, findZone, startOfDayMs, type Zone } from './zone.ts';

/** The time that a report covers: [fromMs, toMs), milliseconds since the Unix epoch. */
export interface Window {
  readonly fromMs: number;
  readonly toMs: number;
  /** IANA name of the time zone for days and months. */
  readonly tz: string;
}

/** A window in a request: `month`, or `from` and `to`. */
export interface WindowQuery {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly month?: string | undefined;
  readonly tz?: string | undefined;
}

export interface FieldProblem {
  readonly field: string;
  readonly message: string;
}

export type WindowResult =
  | { readonly kind: 'window'; readonly window: Window }
  /** All problems at once. */
  | { readonly kind: 'problems'; readonly problems: readonly FieldProblem[] };

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const windowDaysMax = 400;

const wantedMoment =
  'must be a date such as 2026-03-01 (midnight in tz), or an RFC 3339 time with an offset such as 2026-03-01T09:30:00Z';

/**
 * Reads the window of a report. A date is midnight in `tz`, or in UTC if `tz` is missing; a time has its own offset.
 * The end is exclusive.
 */
export function parseWindow(query: WindowQuery): WindowResult {
  const zone = findZone(query.tz ?? 'UTC');
  const problems: FieldProblem[] = [];
  if (zone === null) {
    problems.push({ field: 'tz', message: 'must be an IANA time zone name such as Europe/Berlin' });
  }
  // A window cannot be read without its zone, but all other problems are reported too.
  const ends = readEnds(query, zone ?? utc, problems);
  if (ends === null || zone === null || problems.length > 0) return { kind: 'problems', problems };
  const { fromMs, toMs } = ends;
  const field = query.month === undefined ? 'to' : 'month';
  if (toMs <= fromMs) problems.push({ field, message: 'must be later than from' });
  // Measured by the zone's clock, so that a clock change makes no window too long.
  else if (zone.clockMs(toMs) - zone.clockMs(fromMs) > windowDaysMax * dayMs) {
    problems.push({ field, message: `must be at most ${windowDaysMax} days after from` });
  } else if (!isWritable(fromMs) || !isWritable(toMs)) {
    problems.push({ field, message: 'must be between the years 1970 and 9999 in UTC' });
  }
  if (problems.length > 0) return { kind: 'problems', problems };
  return { kind: 'window', window: { fromMs, toMs, tz: zone.name } };
}

/** RFC 3339 has four digits for a year, and nothing was metered before 1970. */
const isWritable = (momentMs: number): boolean => momentMs >= 0 && momentMs < Date.UTC(10_000, 0);

const utc: Zone = { name: 'UTC', clockMs: (momentMs) => momentMs };

type Ends = Pick<Window, 'fromMs' | 'toMs'>;

function readEnds(query: WindowQuery, zone: Zone, problems: FieldProblem[]): Ends | null {
  const { from, to, month } = query;
  if (month !== undefined) {
    if (from !== undefined || to !== undefined) {
      problems.push({ field: 'month', message: 'must not be used together with from or to' });
    }
    return readMonth(month, zone, problems);
  }
  if (from === undefined && to === undefined) {
    problems.push({ field: 'month', message: 'is required unless from and to are set' });
    return null;
  }
  const read = (field: 'from' | 'to', text: string | undefined): number | null => {
    const momentMs = text === undefined ? null : readMoment(text, zone);
    const wanted = text === undefined ? `is required together with ${field === 'from' ? 'to' : 'from'}` : wantedMoment;
    if (momentMs === null) problems.push({ field, message: wanted });
    return momentMs;
  };
  const [fromMs, toMs] = [read('from', from), read('to', to)];
  return fromMs === null || toMs === null ? null : { fromMs, toMs };
}

function readMoment(text: string, zone: Zone): number | null {
  const midnightMs = parseMoment(text);
  if (midnightMs === null || text.length > 'YYYY-MM-DD'.length) return midnightMs;
  return startOfDayMs(zone, dayOf(midnightMs));
}

function readMonth(text: string, zone: Zone, problems: FieldProblem[]): Ends | null {
  const firstMs = /^\d{4}-\d{2}$/.test(text) ? parseMoment(`${text}-01`) : null;
  if (firstMs === null) {
    problems.push({ field: 'month', message: 'must be a month such as 2026-03' });
    return null;
  }
  const first = dayOf(firstMs);
  return { fromMs: startOfDayMs(zone, first), toMs: startOfDayMs(zone, addMonths(first, 1)) };
}

/** Returns the day of a midnight in UTC. */
function dayOf(midnightMs: number): Day {
  const date = new Date(midnightMs);
  return { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate() };
}

/** Lengths of the steps of a series. Days and months are those of the window's time zone, hours those of its clock. */
export const steps = ['1h', '1d', '1mo'] as const;
export type Step = (typeof steps)[number];

/** Most steps of a series. */
export const stepsMax = 1000;

/**
 * Returns the starts of the steps of a window. The first is the start of the window; the others are full hours, days or
 * months. Null if there are more than `stepsMax`.
 */
export function stepStarts({ fromMs, toMs, tz }: Window, step: Step): readonly number[] | null {
  const zone = findZone(tz);
  if (zone === null) throw new Error(`the time zone ${tz} is unknown`);
  const starts = [fromMs];
  for (let next = nextStart(zone, fromMs, step); next < toMs; next = nextStart(zone, next, step)) {
    if (starts.length === stepsMax) return null;
    starts.push(next);
  }
  return starts;
}

/** Returns the first start of an hour, day or month after a moment. */
function nextStart(zone: Zone, momentMs: number, step: Step): number {
  const clockMs = zone.clockMs(momentMs);
  if (step === '1h') return momentMs + hourMs - (((clockMs % hourMs) + hourMs) % hourMs);
  const date = new Date(clockMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + 1];
  if (step === '1mo') return startOfDayMs(zone, addMonths({ year, month }, 1));
  // Clocks may skip a day: then the next one starts at the same moment.
  for (let days = 1; ; days += 1) {
    const startMs = startOfDayMs(zone, { year, month, day: date.getUTCDate() + days });
    if (startMs > momentMs) return startMs;
  }
}
