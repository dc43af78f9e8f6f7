const pattern =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?([Zz]|[+\- ]([01]\d|2[0-3]):([0-5]\d)))?$/;

/** Last time that is accepted: PostgreSQL and ids write later years with a sign or a fifth digit. */
const lastMs = Date.UTC(9999, 11, 31);

/**
 * Milliseconds since the Unix epoch of a date (midnight UTC) or an RFC 3339 time; digits below a millisecond are
 * dropped. An offset's "+" may have become a blank, which is what a query string makes of one that is not encoded.
 * @returns null for anything else, days that no month has and times before 1970 included
 */
export function parseMoment(text: string): number | null {
  const match = pattern.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', zone = 'Z', ahead, aheadMinutes] =
    match;
  const midnight = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day)));
  if (midnight.getUTCMonth() !== Number(month) - 1 || midnight.getUTCFullYear() !== Number(year)) return null;
  const timeMs =
    ((Number(hour) * 60 + Number(minute)) * 60 + Number(second)) * 1000 + Number(fraction.padEnd(3, '0').slice(0, 3));
  const offsetMs = (Number(ahead ?? 0) * 60 + Number(aheadMinutes ?? 0)) * 60_000;
  const momentMs = midnight.getTime() + timeMs + (zone.startsWith('-') ? offsetMs : -offsetMs);
  return momentMs >= 0 && momentMs <= lastMs ? momentMs : null;
}
