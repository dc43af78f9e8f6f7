import type { Db } from '#base/database/database.ts';
import { PICO_DIGITS } from '#base/money.ts';
import { type Exact, gpuShares, roundExact } from './amount.ts';
import type { UsageSource } from './interval-rows.ts';
import { addPiece, type Amount, amountsOf, type LineSum, writeAmount } from './line-items.ts';
import { readRatedUsage, type UsageView, viewUsage } from './rated-usage.ts';
import type { Window } from './window.ts';

/** Usage of one engine's replicas within a window, and its cost at the recorded rates. */
export interface ReplicaCosts {
  readonly engineId: string;
  /** Milliseconds times GPUs. */
  readonly heldGpuMs: bigint;
  /** Part of `heldGpuMs` before a replica could serve. */
  readonly startingGpuMs: bigint;
  /** Part of `heldGpuMs` without a price. */
  readonly unratedGpuMs: bigint;
  /** Cost that is rated and in USD or converted, rounded once. */
  readonly costPicoUsd: bigint;
  /** Costs in other currencies without a conversion rate to USD. */
  readonly unconverted: readonly Amount[];
}

export interface ReplicaCostsRequest {
  readonly window: Window;
  /** Usage counts up to this moment; without it up to now, by the database's clock. */
  readonly asOfMs?: number | undefined;
}

/** Token revenue is in USD, so costs are compared in USD. */
const revenueCurrency = 'USD';
const source: UsageSource = 'replica';

/** Reads costs by engine. Engines without usage are omitted. */
export async function readReplicaCosts(
  db: Db,
  defaultCurrency: string,
  { window, asOfMs }: ReplicaCostsRequest,
): Promise<ReadonlyMap<string, ReplicaCosts>> {
  return viewUsage(db, asOfMs ?? null, async (view) => {
    const engines = new Map<string, Map<string, LineSum>>();
    const request = { window, organizationIds: null, source, defaultCurrency, inCurrency: revenueCurrency };
    await readRatedUsage(view, request, ({ clusterId, hardwareProfile, split, pieces }) => {
      const lines = engines.get(clusterId) ?? new Map<string, LineSum>();
      engines.set(clusterId, lines);
      for (const piece of pieces) addPiece(lines, { hardwareProfile, split }, piece, window.fromMs);
      return true;
    });
    const starting = await readStarting(view, window);
    const costs = [...engines].filter(([, lines]) => lines.size > 0);
    return new Map(
      costs.map(([engineId, lines]) => [engineId, sumLines(engineId, [...lines.values()], starting.get(engineId))]),
    );
  });
}

function sumLines(engineId: string, lines: readonly LineSum[], startingGpuMs = 0n): ReplicaCosts {
  const [held, unrated] = [lines, lines.filter(({ pricing }) => !pricing.rated)].map((some) =>
    some.reduce((sum, { gpuShareMs }) => sum + gpuShareMs, 0n),
  );
  const exact = new Map<string, Exact>();
  for (const line of lines) {
    const billed = amountsOf(line, line.pricing)?.billed;
    if (billed !== undefined) exact.set(billed.currency, (exact.get(billed.currency) ?? 0n) + billed.exact);
  }
  const others = [...exact]
    .filter(([currency]) => currency !== revenueCurrency)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return {
    engineId,
    heldGpuMs: (held ?? 0n) / gpuShares,
    startingGpuMs,
    unratedGpuMs: (unrated ?? 0n) / gpuShares,
    costPicoUsd: roundExact(exact.get(revenueCurrency) ?? 0n, PICO_DIGITS),
    unconverted: others.map(([currency, amount]) => writeAmount({ currency, exact: amount })),
  };
}

/** Reads starting time by engine. A replica that never could serve was starting all its time. */
async function readStarting({ sql, asOfMs }: UsageView, window: Window): Promise<ReadonlyMap<string, bigint>> {
  const [from, to] = [String(window.fromMs), String(Math.min(window.toMs, asOfMs))];
  const rows = await sql<{ cluster_id: string; gpu_ms: string }[]>`
    select s.cluster_id, sum(i.gpus * i.gpu_share * greatest(0, i.until - i.since)) as gpu_ms
    from (
      select snapshot_id, gpus, gpu_share, greatest(started_ms, ${from}::text::bigint) as since,
        least(ready_ms, ended_ms, ${to}::text::bigint) as until
      from usage_intervals
      where source = ${source} and started_ms < ${to}::text::bigint
        and (ended_ms is null or ended_ms > ${from}::text::bigint)
    ) as i join usage_snapshots s on s.id = i.snapshot_id
    group by s.cluster_id`;
  return new Map(rows.map((row) => [row.cluster_id, BigInt(row.gpu_ms) / gpuShares]));
}
