import type { Window } from './window.ts';
import { addMonths, findZone, startOfDayMs, type Zone } from './zone.ts';

/** Lengths of the steps of a series. Days and months are those of the window's time zone, hours those of its clock. */
export const steps = ['1h', '1d', '1mo'] as const;
export type Step = (typeof steps)[number];

/** Most steps of a series. */
export const stepsMax = 1000;

const hourMs = 3_600_000;

/**
 * Returns the starts of the steps of a window. The first is the start of the window; the others are full hours, days or
 * months. Null if there are more than `stepsMax`.
 */
export function stepStarts({ fromMs, toMs, tz }: Window, step: Step): readonly number[] | null {
  const zone = findZone(tz);
  if (zone === null) throw new Error(`the time zone ${tz} is unknown`);
  const starts = [fromMs];
  for (let next = after(zone, fromMs, step); next < toMs; next = after(zone, next, step)) {
    if (starts.length === stepsMax) return null;
    starts.push(next);
  }
  return starts;
}

/** Returns the first start of an hour, day or month after a moment. */
function after(zone: Zone, momentMs: number, step: Step): number {
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
