import type { Seen } from './parts/client.ts';
import type { Outcome } from './run.ts';

const nameWidth = 28;
const reasonsShown = 5;
const reasonLengthMax = 300;

/** One line: the row, its figures, and whether it holds. */
export function lineOf(outcome: Outcome): string {
  const name = outcome.row.padEnd(nameWidth);
  const why = outcome.why.map((reason) => reason.replaceAll(/\s+/g, ' ').slice(0, reasonLengthMax));
  if (outcome.verdict === 'left out') return `${name} left out: ${why.join('; ')}`;
  const shown = why.slice(0, reasonsShown);
  if (why.length > reasonsShown) shown.push(`and ${why.length - reasonsShown} more`);
  const verdict = outcome.verdict === 'holds' ? 'holds' : `FAILS: ${shown.join('; ')}`;
  return `${name} ${figuresOf(outcome)} · ${verdict}`;
}

function figuresOf({ seen, figures, recoveredSeconds, notes, seconds }: Outcome): string {
  const complete = seen.filter((one) => one.complete).length;
  const parts = seen.length === 0 ? [] : [`${seen.length} requests`, `${complete} complete`];
  if (figures !== null) parts.push(`${figures.billed} billed`);
  if (figures !== null && figures.withheld > 0) parts.push(`${figures.withheld} withheld`);
  parts.push(...errorsOf(seen));
  if (seen.length > 0) parts.push(`longest wait ${longestWaitSeconds(seen).toFixed(2)} s`);
  if (recoveredSeconds !== null) parts.push(`recovered in ${recoveredSeconds.toFixed(1)} s`);
  return [...parts, ...notes, `${Math.round(seconds)} s in all`].join(', ');
}

/** Statuses of 500 and more with their code, and requests without an answer. */
function errorsOf(seen: readonly Seen[]): string[] {
  const counts = new Map<string, number>();
  for (const { status, code, hasLeft } of seen) {
    const isError = status >= 500 || status === 0 || (status === 200 && code !== null);
    if (!isError || hasLeft) continue;
    const name = status === 0 ? 'no answer' : status === 200 ? `stream ${code}` : `${status} ${code}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => `${name} × ${count}`);
}

/** Time beyond the duration that the engine was given. */
export function longestWaitSeconds(seen: readonly Seen[]): number {
  const waits = seen.filter(({ hasLeft }) => !hasLeft).map(waitMs);
  return Math.max(0, ...waits) / 1000;
}

export const waitMs = ({ beganMs, endedMs, ask }: Seen): number => endedMs - beganMs - ask.plannedMs;
