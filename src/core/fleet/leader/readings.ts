import type { Clock } from '#base/clock.ts';
import type { ObservedReplica } from '#core/fleet/drivers/drivers.ts';
import type { EngineState, LeaderState, ReplicaState } from '#core/fleet/plan/plan.ts';
import type { ReplicaRuns } from '#core/fleet/runs/runs.ts';
import { type LoadReport, readEngine } from '#core/fleet/serving/serving.ts';
import type { Demand } from '#core/fleet/store/store.ts';

/** Intervals of readings: for the number of replicas, and for the progress of a replica with requests. */
const loadEveryMs = 1000;
const progressEveryMsMax = 10_000;
/** Readings within the time after which a replica without progress gets a canary. */
const readingsPerSilence = 6;

interface ReadingsOptions {
  readonly clock: Clock;
  readonly runs: ReplicaRuns | null;
}

/** The last metrics of ready replicas, as far as decisions depend on them. */
export class Readings {
  /** Loads of the replicas of engines that may have several. */
  readonly loads = new Map<string, LoadReport>();
  /** Progress of replicas that are watched for it; kept while the metrics do not answer. */
  readonly progress = new Map<string, string>();
  readonly #options: ReadingsOptions;
  /** When each replica was last read, in monotonic milliseconds. */
  readonly #readAtMs = new Map<string, number>();

  constructor(options: ReadingsOptions) {
    this.#options = options;
  }

  /** Begins the readings that are due, and drops those of replicas that are not ready any more. */
  renew({ engines }: LeaderState, observed: ReadonlyMap<string, ObservedReplica>, demands: readonly Demand[]): void {
    const nowMs = this.#options.clock.monotonicMs();
    const ready = new Set<string>();
    for (const engine of engines) {
      for (const replica of engine.replicas) {
        if (replica.phase !== 'ready') continue;
        ready.add(replica.id);
        const found = observed.get(replica.id);
        const everyMs = intervalOf(engine, replica, demands);
        if (found === undefined || everyMs === null) continue;
        if (nowMs - (this.#readAtMs.get(replica.id) ?? -Infinity) < everyMs) continue;
        this.#readAtMs.set(replica.id, nowMs);
        void this.#read(found, engine, nowMs);
      }
    }
    for (const kept of [this.loads, this.progress, this.#readAtMs])
      for (const id of kept.keys()) if (!ready.has(id)) kept.delete(id);
  }

  async #read({ replica }: ObservedReplica, engine: EngineState, nowMs: number): Promise<void> {
    const reading = await readEngine(replica);
    this.#options.runs?.take(replica.id, reading, nowMs);
    // The replica may have ended meanwhile.
    if (!this.#readAtMs.has(replica.id)) return;
    if (isScaled(engine)) this.loads.set(replica.id, reading.load);
    if (reading.progress !== null) this.progress.set(replica.id, reading.progress);
  }
}

const isScaled = ({ bounds }: EngineState): boolean => bounds.max > 1;

/** Returns the milliseconds between two readings of a replica; null if nothing depends on them. */
function intervalOf(engine: EngineState, replica: ReplicaState, demands: readonly Demand[]): number | null {
  const { wedgedMs } = engine.spec.definition;
  if (isScaled(engine)) return loadEveryMs;
  const isBusy = demands.some(({ engines }) => (engines[engine.id]?.leases[replica.id] ?? 0) > 0);
  return wedgedMs === null || !isBusy ? null : Math.min(wedgedMs / readingsPerSilence, progressEveryMsMax);
}
