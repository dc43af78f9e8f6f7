import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { createSerial } from '#base/queues/queues.ts';
import { type EngineHistory, type EngineRequests, type Fleet, readEngineHistory } from '#core/fleet/fleet.ts';
import type { Gateways } from '#core/gateways/gateways.ts';
import type { Metering } from '#core/metering/metering.ts';
import { type Bases, findMoved, ownUnderBases, underBases, withAdapters } from './adapters.ts';
import { findEdges } from './edges.ts';
import { compare } from './compare.ts';
import type { Present, RequestsMax } from './known.ts';
import type { Reconciliation } from './reconciliation.ts';

export { type Explanation, type ReconciledHour, type Reconciliation } from './reconciliation.ts';

/** Compares the ledger, the records of usage, and the engines' counts with each other. */
export interface Reconciler {
  /**
   * Compares by model and hour. Full hours, in milliseconds since the Unix epoch: `fromMs` is rounded down and `toMs`
   * up.
   * @param span at most `spanMsMax` long
   */
  reconcile(span: { readonly fromMs: number; readonly toMs: number }): Promise<Reconciliation>;
}

export interface ReconcilerOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly metering: Pick<Metering, 'reports' | 'pending' | 'spooled'>;
  readonly fleet: Pick<Fleet, 'readCounters' | 'list'>;
  readonly engineRequests: Pick<EngineRequests, 'flush'>;
  readonly gateways: Pick<Gateways, 'live' | 'uncleanRuns'>;
  readonly limits: RequestsMax;
  /** Returns the maximum tokens of one sequence of a model, input plus output; null for an unknown model. */
  readonly contextLengthOf: (model: string) => number | null;
  /** Returns the bases of LoRA adapters. */
  readonly bases: () => Bases;
}

const hourMs = 3_600_000;
/** Maximum length of a span; longer ones must be requested in parts. */
export const spanMsMax = 31 * 24 * hourMs;

export function createReconciler(options: ReconcilerOptions): Reconciler {
  const { db, clock, metering, fleet, engineRequests, gateways, limits, contextLengthOf, bases } = options;
  const readPresent = async (nowMs: number): Promise<Present> => {
    const live = await gateways.live();
    const running = new Map(fleet.list().map((engine) => [engine.engineId, engine.leases + engine.waiting]));
    return { nowMs, running, unwritten: metering.pending + metering.spooled, others: live.size - 1 };
  };
  const reconcile = async ({ fromMs, toMs }: Pick<Reconciliation, 'fromMs' | 'toMs'>): Promise<Reconciliation> => {
    const span = { fromMs: Math.floor(fromMs / hourMs) * hourMs, toMs: Math.ceil(toMs / hourMs) * hourMs };
    const nowMs = clock.now();
    // Engines first: requests that end meanwhile are in the records, and count as in progress at the time of the
    // reading.
    const reachesNow = span.toMs > nowMs;
    if (reachesNow) await fleet.readCounters();
    // The engines have counted the gateway's own requests, which are written once per second.
    if (reachesNow) await engineRequests.flush();
    const known = bases();
    const read = endSilent(await readEngineHistory(db, span.fromMs, span.toMs), nowMs);
    const history = ownUnderBases(read, known);
    const present = await readPresent(nowMs);
    // Requests in progress on a gateway that died later were counted before its end.
    const gatewayRuns = await gateways.uncleanRuns(span.fromMs, span.toMs + hourMs);
    const edges = findEdges({ span, history, present });
    const asked = { edges: withAdapters(edges.all, known), most: limits };
    const recorded = await metering.reports.usageHours(span, asked);
    const moved = findMoved(read, recorded, known);
    const usage = underBases(recorded, edges.all, known);
    return compare({ span, history, moved, gatewayRuns, present, limits, contextLengthOf }, usage, edges);
  };
  // Each run reads all records of its span: one at a time leaves the rest of the database to others.
  const serial = createSerial();
  return { reconcile: (span) => serial('', () => reconcile(span)) };
}

/**
 * Time without a reading after which a run counts as ended: counters are read every few seconds, so the leader died or
 * the engine hangs.
 */
const silentMs = 15 * 60_000;

/** Ends runs whose counters nobody reads any more, and whose end nobody saw. */
function endSilent(history: EngineHistory, nowMs: number): EngineHistory {
  const runs = history.runs.map((run) => {
    if (run.endedMs !== null || (run.scrapedMs ?? run.startedMs) > nowMs - silentMs) return run;
    const endedMs = (run.scrapedMs ?? run.startedMs) + silentMs;
    return { ...run, endedMs, ended: 'unclean' as const, endReason: 'silent' };
  });
  return { ...history, runs };
}
