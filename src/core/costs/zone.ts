/** A calendar day; months count from 1. */
export interface Day {
  readonly year: number;
  readonly month: number;
  readonly day: number;
}

/** A time zone by its IANA name, with the rules of this version of Node. */
export interface Zone {
  readonly name: string;
  /** Local time at a moment, as milliseconds since 1970-01-01T00:00 local time. */
  clockMs(momentMs: number): number;
}

/** @returns null if no time zone has the name */
export function findZone(name: string): Zone | null {
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      calendar: 'iso8601',
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
  const known = format.resolvedOptions().timeZone;
  return {
    // Node knows some zones only by a former name: `Europe/Kyiv` as `Europe/Kiev`.
    name: known.toLowerCase() === name.toLowerCase() ? known : name,
    clockMs(momentMs) {
      const shown: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {};
      for (const { type, value } of format.formatToParts(momentMs)) shown[type] = Number(value);
      const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = shown;
      return Date.UTC(year, month - 1, day, hour, minute, second) + (((momentMs % 1000) + 1000) % 1000);
    },
  };
}

const hourMs = 3_600_000;
/** No zone is further from UTC. */
const offsetHoursMax = 26;

/**
 * Returns the first moment of a day. If midnight occurs twice, the first one, however soon after it clocks go back; if
 * clocks skip midnight or the whole day, the first moment after the gap.
 */
export function startOfDayMs(zone: Zone, { year, month, day }: Day): number {
  const midnight = Date.UTC(year, month - 1, day);
  const hours = Array.from({ length: 2 * offsetHoursMax + 1 }, (_, at) => midnight + (at - offsetHoursMax) * hourMs);
  // An offset lasts at least one hour, so hourly samples find all; midnight itself may come back a minute later.
  const offsets = new Set(hours.map((moment) => zone.clockMs(moment) - moment));
  const midnights = [...offsets]
    .map((offset) => midnight - offset)
    .filter((moment) => zone.clockMs(moment) === midnight);
  if (midnights.length > 0) return Math.min(...midnights);
  const past = hours.find((moment) => zone.clockMs(moment) >= midnight);
  if (past === undefined) throw new Error(`no midnight of ${year}-${month}-${day} in ${zone.name}`);
  return firstAtOrPast(zone, midnight, past - hourMs, past);
}

/** Returns the first moment in (before, after] at which clocks show at least `wanted`; at `before` they show less. */
function firstAtOrPast(zone: Zone, wanted: number, before: number, after: number): number {
  let [low, high] = [before, after];
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (zone.clockMs(middle) >= wanted) high = middle;
    else low = middle;
  }
  return high;
}

/** Returns the first day of the month that comes `months` months later. */
export function addMonths({ year, month }: Pick<Day, 'year' | 'month'>, months: number): Day {
  const first = new Date(Date.UTC(year, month - 1 + months, 1));
  return { year: first.getUTCFullYear(), month: first.getUTCMonth() + 1, day: 1 };
}
