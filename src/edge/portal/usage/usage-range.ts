import type { UsageGroupAnswer } from '#edge/contract/usage.ts';
import { type Choice, queryOf, type Visit } from '#edge/portal/ui/ui.ts';

/** Time spans to choose from. Days and months are in UTC, as in the records. */

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export const ranges = [
  { value: 'today', label: 'Today' },
  { value: 'yesterday', label: 'Yesterday' },
  { value: '7', label: 'Last 7 days' },
  { value: '30', label: 'Last 30 days' },
  { value: '90', label: 'Last 90 days' },
  { value: 'month', label: 'This month' },
  { value: 'last-month', label: 'Last month' },
  { value: 'dates', label: 'Custom dates' },
] as const satisfies readonly Choice[];

type RangeName = (typeof ranges)[number]['value'];

export interface Range {
  readonly name: RangeName;
  /** Milliseconds since the Unix epoch; `toMs` is exclusive. */
  readonly fromMs: number;
  readonly toMs: number;
  /** The requested days, as typed; empty for other ranges. */
  readonly from: string;
  readonly until: string;
  /** Time span of one bar. */
  readonly unit: 'hour' | 'day';
}

/** One bar: an hour or a day. */
export interface Bucket {
  /** The key of the group of sums with this bar's numbers. */
  readonly key: string;
  readonly label: string;
}

/** Returns midnight UTC of a date such as "2026-11-23"; null if the text is no date. */
function dateMs(text: string): number | null {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return null;
  const ms = Date.parse(`${text}T00:00:00Z`);
  return Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 10) !== text ? null : ms;
}

/**
 * Returns the time span of a page's query; invalid queries mean the last 30 days. The last day is included, and is
 * today at the latest. `shown` is the range in the form when it was loaded: a visitor who left the range unchanged and
 * typed days means the days.
 */
export function rangeOf({ context }: Visit, nowMs: number): Range {
  const asked = queryOf(context, 'range').trim();
  const [from, until] = [queryOf(context, 'from').trim(), queryOf(context, 'until').trim()];
  const areTyped = `${from}${until}` !== '' && asked === queryOf(context, 'shown');
  const name = areTyped ? 'dates' : (ranges.find(({ value }) => value === asked)?.value ?? '30');
  if (name !== 'dates') return { name, ...spanOf(name, nowMs), from: '', until: '' };
  const [fromMs, untilMs] = [dateMs(from), dateMs(until)];
  const today = startOfDay(nowMs);
  const last = Math.min(untilMs ?? today, today);
  if (fromMs === null || fromMs > last) return { name: '30', ...spanOf('30', nowMs), from, until };
  return { name, fromMs, toMs: last + dayMs, from, until, unit: last === fromMs ? 'hour' : 'day' };
}

const startOfDay = (ms: number): number => ms - (ms % dayMs);

function spanOf(name: Exclude<RangeName, 'dates'>, nowMs: number): Pick<Range, 'fromMs' | 'toMs' | 'unit'> {
  const now = new Date(nowMs);
  const today = startOfDay(nowMs);
  const tomorrow = today + dayMs;
  const month = (back: number): number => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1);
  if (name === 'today') return { fromMs: today, toMs: tomorrow, unit: 'hour' };
  if (name === 'yesterday') return { fromMs: today - dayMs, toMs: today, unit: 'hour' };
  if (name === 'month') return { fromMs: month(0), toMs: tomorrow, unit: 'day' };
  if (name === 'last-month') return { fromMs: month(1), toMs: month(0), unit: 'day' };
  return { fromMs: tomorrow - Number(name) * dayMs, toMs: tomorrow, unit: 'day' };
}

/**
 * Most bars of a span that may be empty. A longer span starts with the first day that has usage: somebody may ask for
 * all days since 1970.
 */
const emptyBarsMax = 400;

/** Returns the bars of a span with the usage in these groups. */
export function bucketsOf({ fromMs, toMs, unit }: Range, groups: readonly UsageGroupAnswer[]): readonly Bucket[] {
  const stepMs = unit === 'hour' ? hourMs : dayMs;
  const isLong = (toMs - fromMs) / stepMs > emptyBarsMax;
  const beginMs = isLong ? Math.max(fromMs, firstDayMs(groups) ?? toMs) : fromMs;
  return Array.from({ length: Math.round((toMs - beginMs) / stepMs) }, (_, index): Bucket => {
    const ms = beginMs + index * stepMs;
    const text = new Date(ms).toISOString();
    return unit === 'hour'
      ? { key: String(ms / 1000), label: `${text.slice(11, 16)} UTC` }
      : { key: text.slice(0, 10), label: text.slice(0, 10) };
  });
}

/** Returns the first day among the groups; null if none has a day. */
function firstDayMs(groups: readonly UsageGroupAnswer[]): number | null {
  const [first] = groups.flatMap(({ day }) => (day === undefined ? [] : [day])).toSorted();
  return first === undefined ? null : dateMs(first);
}

/** Returns the key of the bar that a group belongs to. */
export const bucketKey = ({ day, hour }: UsageGroupAnswer): string => day ?? String(hour ?? '');
