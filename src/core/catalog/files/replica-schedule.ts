import { Cron } from 'croner';
import type { ScheduleEntry } from './engine-definition.ts';

/** The state of a schedule in a period of time. Times are milliseconds since the Unix epoch. */
export interface ScheduleState {
  /** Entry in effect: the one whose last time is the latest; null if no entry has had its time yet. */
  readonly entry: ScheduleEntry | null;
  /** When `entry` took effect; -Infinity if there is none. */
  readonly sinceMs: number;
  /** Entry that takes effect next; null if none ever does. */
  readonly next: ScheduleEntry | null;
  /** When `next` takes effect; Infinity if there is none. */
  readonly untilMs: number;
}

const unscheduled: ScheduleState = { entry: null, sinceMs: -Infinity, next: null, untilMs: Infinity };
/** Bounds the search for the next change where entries have their times together, so that none changes anything. */
const togetherMax = 400;
/** The last state of each schedule. Parsing an expression and finding its last time takes up to a millisecond. */
const states = new WeakMap<readonly ScheduleEntry[], ScheduleState>();

/**
 * Returns the state of a schedule. It depends on the schedule and the time only, so that it is the same after a restart
 * and on every gateway. If several entries have their times together, the last of them in the file takes effect.
 * @param atMs milliseconds since the Unix epoch
 */
export function scheduleStateAt(schedule: readonly ScheduleEntry[], atMs: number): ScheduleState {
  if (schedule.length === 0) return unscheduled;
  const known = states.get(schedule);
  if (known !== undefined && known.sinceMs <= atMs && atMs < known.untilMs) return known;
  const state = computeState(schedule, atMs);
  states.set(schedule, state);
  return state;
}

interface Timed {
  readonly entry: ScheduleEntry;
  readonly cron: Cron;
}

function computeState(schedule: readonly ScheduleEntry[], atMs: number): ScheduleState {
  const all = schedule.map((entry) => ({ entry, cron: parseCron(entry.cron, entry.timezone) }));
  let current: Timed | null = null;
  let sinceMs = -Infinity;
  for (const one of all) {
    // Croner's reference is exclusive.
    const lastMs = one.cron.previousRuns(1, new Date(atMs + 1))[0]?.getTime() ?? -Infinity;
    if (lastMs === -Infinity || lastMs < sinceMs) continue;
    current = one;
    sinceMs = lastMs;
  }
  return { entry: current?.entry ?? null, sinceMs, ...nextChange(all, current, atMs) };
}

function nextChange(all: readonly Timed[], current: Timed | null, atMs: number) {
  const nextMs = ({ cron }: Timed, afterMs: number): number => cron.nextRun(new Date(afterMs))?.getTime() ?? Infinity;
  const others = all.filter((one) => one !== current);
  let fromMs = atMs;
  for (let count = 0; count < togetherMax; count += 1) {
    const untilMs = Math.min(...others.map((one) => nextMs(one, fromMs)));
    if (untilMs === Infinity) break;
    const winner = all.findLast((one) => nextMs(one, untilMs - 1) === untilMs) ?? null;
    if (winner !== null && winner !== current) return { next: winner.entry, untilMs };
    fromMs = untilMs;
  }
  return { next: null, untilMs: Infinity };
}

/**
 * @param cron five fields
 * @throws if the expression or the time zone is invalid
 */
function parseCron(cron: string, timezone: string): Cron {
  // A time that the clock skips is right after the gap, and one that it repeats is the first of both, as in Vixie cron.
  return new Cron(cron, { timezone, mode: '5-part', paused: true, fixedTimeRule: 'no-wildcard' });
}

const fieldsPattern = /^[^\s?]+( [^\s?]+){4}$/;
const zonePattern = /^[A-Za-z][A-Za-z0-9_+/-]*$/;

/** Returns the problem of a cron expression, or null. */
export function cronProblem(cron: string): string | null {
  const expected = 'expected a cron expression with five fields, such as "0 8 * * 1-5"';
  // Croner replaces ? by the present time, which is another one after each restart.
  if (!fieldsPattern.test(cron)) return expected;
  try {
    return parseCron(cron, 'UTC').nextRun() === null ? 'this time never comes' : null;
  } catch (error) {
    const detail = error instanceof Error ? error.message.replace(/^CronPattern: /, '') : '';
    return `${expected} (${detail})`;
  }
}

/** Returns the problem of the name of a time zone, or null. */
export function timezoneProblem(timezone: string): string | null {
  const problem = 'expected a time zone of the IANA database, such as Europe/Berlin';
  if (!zonePattern.test(timezone)) return problem;
  try {
    return new Intl.DateTimeFormat('en', { timeZone: timezone }).format(0) === '' ? problem : null;
  } catch {
    return problem;
  }
}
