import type { Sql } from 'postgres';
import { uuidLowerBound, uuidTimeMs } from '#base/id.ts';
import type { OutcomeKind } from '#core/metering/records/records.ts';

/** A filter in the terms of the tables: codes, and bounds of ids. */
export interface CodedFilter {
  readonly organization: number;
  readonly key: number | null;
  /** Null for all keys. */
  readonly ofKeys: readonly number[] | null;
  readonly project: number | null;
  readonly model: number | null;
  readonly outcome: OutcomeKind | null;
  readonly status: number | null;
  /** Part of the error code; null for all. */
  readonly error: string | null;
  /** Lowest id, included. */
  readonly from: string;
  /** Highest id, excluded. */
  readonly to: string;
}

/** An hour in which a key has matching requests. */
export interface KeyHour {
  /** Code of the key. */
  readonly key: number;
  /** Milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Number of matching requests in a day or an hour, by key. */
interface Sum {
  readonly key: number;
  /** Milliseconds since the Unix epoch. */
  readonly startMs: number;
  readonly matches: number;
}

interface SumRow {
  readonly key: number;
  readonly start_ms: string;
  readonly matches: string;
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** Numbers of days that are searched before the next, longer stretch: most pages are found in the newest. */
const stretches = [2, 14, 90, 366, Number.POSITIVE_INFINITY];

interface Bounds {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Returns the hours, by key, in which the newest `wanted` requests lie that match according to the sums. Days decide
 * which hours are read, so that a filter with few or no matches costs little.
 */
export async function findHours(sql: Sql, filter: CodedFilter, wanted: number): Promise<readonly KeyHour[]> {
  const toMs = uuidTimeMs(filter.to);
  // Requests of the last millisecond may be inside or outside, unless its lowest id is the end.
  const pastMs = filter.to === uuidLowerBound(toMs) ? toMs : toMs + 1;
  const bounds = { fromMs: uuidTimeMs(filter.from), toMs: Math.min(pastMs, endOfTimeMs) };
  const days = await findDays(sql, filter, { bounds, wanted });
  if (days.length === 0) return [];
  const hours = enough(await sumHours(sql, filter, days), { bounds, wanted, unitMs: hourMs });
  return hours.map(({ key, startMs }) => ({ key, fromMs: startMs, toMs: startMs + hourMs }));
}

/** Last time that PostgreSQL and JavaScript both write with a year of four digits. */
const endOfTimeMs = Date.UTC(9999, 11, 31);

interface Search {
  readonly bounds: Bounds;
  readonly wanted: number;
}

async function findDays(sql: Sql, filter: CodedFilter, { bounds, wanted }: Search): Promise<readonly Sum[]> {
  const newestMs = await findNewestDay(sql, filter, bounds);
  let found: readonly Sum[] = [];
  let toMs = newestMs + dayMs;
  for (const days of stretches) {
    const fromMs = Math.max(bounds.fromMs - (bounds.fromMs % dayMs), newestMs + dayMs - days * dayMs);
    if (fromMs >= toMs) break;
    found = [...found, ...(await sumDays(sql, filter, { fromMs, toMs }))];
    const taken = enough(found, { bounds, wanted, unitMs: dayMs });
    if (taken.length < found.length || countWhole(found, bounds, dayMs) >= wanted) return taken;
    toMs = fromMs;
  }
  return found;
}

/** Returns the newest day of the organization within bounds; its last requests may be long ago. */
async function findNewestDay(sql: Sql, { organization }: CodedFilter, { toMs }: Bounds): Promise<number> {
  const [row] = await sql<{ start_ms: string }[]>`
    select (extract(epoch from day) * 1000)::bigint::text as start_ms from usage_daily
    where organization = ${organization} and day <= ${dateOf(toMs)}::date order by day desc limit 1`;
  return Number(row?.start_ms ?? 0);
}

/** Returns sums per day, newest first. */
async function sumDays(sql: Sql, filter: CodedFilter, { fromMs, toMs }: Bounds): Promise<readonly Sum[]> {
  const rows = await sql<SumRow[]>`
    select s.key, (extract(epoch from s.day) * 1000)::bigint::text as start_ms, sum(${counterSql(sql, filter)})::text as matches
    from usage_daily s
    where s.organization = ${filter.organization} and s.day >= ${dateOf(fromMs)}::date and s.day < ${dateOf(toMs)}::date
      ${matchSql(sql, filter)}
    group by s.day, s.key order by s.day desc`;
  return rows.map(toSum);
}

/** Returns sums per hour, newest first. One index lookup per hour; a join could read all hours of the organization. */
async function sumHours(sql: Sql, filter: CodedFilter, days: readonly Sum[]): Promise<readonly Sum[]> {
  const looked = days.map(({ key, startMs }) => ({ key, day: new Date(startMs).toISOString() }));
  const rows = await sql<SumRow[]>`
    select d.key, (extract(epoch from d.day) * 1000 + h * ${hourMs})::bigint::text as start_ms, found.matches::text
    from json_to_recordset(${JSON.stringify(looked)}::text::json) as d(key integer, day timestamptz)
    cross join generate_series(0, 23) as h
    cross join lateral (
      select sum(${counterSql(sql, filter)}) as matches from usage_hourly s
      where s.organization = ${filter.organization} and s.hour = d.day + h * interval '1 hour' and s.key = d.key
        ${matchSql(sql, filter)}
    ) as found
    where found.matches > 0 order by d.day desc, h desc`;
  return rows.map(toSum);
}

/** Returns what counts the requests that may match in a row of sums `s`. */
function counterSql(sql: Sql, { outcome, status, error }: CodedFilter) {
  if (outcome !== null) return sql.unsafe(`s.${outcome}`);
  if (error !== null) return sql.unsafe('(s.failed + s.ended)');
  return sql.unsafe(status !== null && status >= 400 ? '(s.requests - s.completed)' : 's.requests');
}

/** True if sums count exactly the requests that match. They do not know statuses and errors. */
export const isCounted = ({ status, error }: CodedFilter): boolean => status === null && error === null;

function matchSql(sql: Sql, filter: CodedFilter) {
  const { key, ofKeys, project, model } = filter;
  return sql`and ${counterSql(sql, filter)} > 0 ${key === null ? sql`` : sql`and s.key = ${key}`}
    ${ofKeys === null ? sql`` : sql`and s.key in (select value::text::integer from json_array_elements(${JSON.stringify(ofKeys)}::text::json))`}
    ${project === null ? sql`` : sql`and s.project = ${project}`} ${model === null ? sql`` : sql`and s.model = ${model}`}`;
}

const toSum = ({ key, start_ms, matches }: SumRow): Sum => ({
  key,
  startMs: Number(start_ms),
  matches: Number(matches),
});

const dateOf = (timeMs: number): string => new Date(timeMs).toISOString().slice(0, 10);

/** True if the unit lies wholly within bounds. For a unit that the bounds cut, the number inside is unknown. */
function isWhole({ startMs }: Sum, { fromMs, toMs }: Bounds, unitMs: number): boolean {
  return startMs >= fromMs && startMs + unitMs < toMs;
}

function countWhole(sums: readonly Sum[], bounds: Bounds, unitMs: number): number {
  return sums.filter((sum) => isWhole(sum, bounds, unitMs)).reduce((total, { matches }) => total + matches, 0);
}

/** Returns the newest units, each with all its keys, up to this number of matches; none out of bounds. */
function enough(newestFirst: readonly Sum[], { bounds, wanted, unitMs }: Search & { unitMs: number }): readonly Sum[] {
  const taken: Sum[] = [];
  let matches = 0;
  for (const sum of newestFirst) {
    if (matches >= wanted && sum.startMs !== taken.at(-1)?.startMs) break;
    if (sum.startMs + unitMs <= bounds.fromMs || sum.startMs >= bounds.toMs) continue;
    taken.push(sum);
    if (isWhole(sum, bounds, unitMs)) matches += sum.matches;
  }
  return taken;
}
