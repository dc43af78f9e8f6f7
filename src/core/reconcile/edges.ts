import type { EngineHistory, ReplicaRun } from '#core/fleet/fleet.ts';
import type { Edge } from '#core/metering/metering.ts';
import type { Known } from './known.ts';

/** Times up to which the counters of a model's engines are known; each is a bound for the requests in progress. */
export interface Edges {
  readonly all: readonly Edge[];
  /** Indexes in `all` by `hour model`: the end of the hour; for the hour before the span, the start of the span. */
  readonly ofHours: ReadonlyMap<string, number>;
  /** Indexes in `all` by run, for runs that ended without a last reading. */
  readonly ofEnds: ReadonlyMap<string, number>;
  /** Indexes in `all` by run, for runs that had counted tokens before they were found. */
  readonly ofFinds: ReadonlyMap<string, number>;
}

const hourMs = 3_600_000;
/** Maximum delay of an engine's counters after its answers. */
const lagMs = 1000;

export const hourKey = (hour: number, model: string): string => `${hour} ${model}`;

export function findEdges({ span, history, present }: Pick<Known, 'span' | 'history' | 'present'>): Edges {
  const all: Edge[] = [];
  const ofHours = new Map<string, number>();
  const ofEnds = new Map<string, number>();
  const ofFinds = new Map<string, number>();
  const readings = readingsOf(history);
  const add = (edge: Edge): number => all.push(edge) - 1;
  for (const [model, runs] of Map.groupBy(history.runs, (run) => run.model)) {
    for (let endMs = span.fromMs; endMs <= span.toMs; endMs += hourMs) {
      const fromMs = leastRead(runs, readings, endMs) - lagMs;
      ofHours.set(hourKey(endMs - hourMs, model), add({ model, fromMs, toMs: endMs }));
      if (endMs > present.nowMs) break;
    }
    for (const run of runs) {
      const { id, ended, endedMs, scrapedMs, startedMs, isFound } = run;
      const hourStartMs = startedMs - (startedMs % hourMs);
      if (isFound) ofFinds.set(id, add({ model, fromMs: hourStartMs - lagMs, toMs: startedMs + lagMs }));
      if (ended !== 'unclean' || endedMs === null) continue;
      ofEnds.set(id, add({ model, fromMs: (scrapedMs ?? startedMs) - lagMs, toMs: endedMs }));
    }
  }
  return { all, ofHours, ofEnds, ofFinds };
}

/** Returns the last reading of each run in each hour, oldest first. */
function readingsOf({ hours }: EngineHistory): ReadonlyMap<string, readonly number[]> {
  const byRun = new Map<string, number[]>();
  for (const { runId, scrapedMs } of hours) {
    const known = byRun.get(runId);
    if (known === undefined) byRun.set(runId, [scrapedMs]);
    else known.push(scrapedMs);
  }
  return byRun;
}

/** Returns the earliest last reading of the runs in progress at `atMs`; `atMs` itself without runs. */
function leastRead(
  runs: readonly ReplicaRun[],
  readings: ReadonlyMap<string, readonly number[]>,
  atMs: number,
): number {
  let least = atMs;
  for (const { id, startedMs, endedMs, readBeforeMs } of runs) {
    if (startedMs >= atMs || (endedMs !== null && endedMs < atMs)) continue;
    const read = readings.get(id)?.findLast((ms) => ms < atMs) ?? readBeforeMs ?? startedMs;
    least = Math.min(least, read);
  }
  return least;
}
