import type { Clock } from '#base/clock.ts';
import type { DriverType, EngineDriver, StartActivity } from '#core/fleet/drivers/drivers.ts';
import { driverType, type EngineState, type LeaderState, type StartReading } from '#core/fleet/plan/plan.ts';

const readEveryMsMax = 5000;
/** Readings within the time after which a start counts as stalled. */
const readingsPerStall = 6;
/** Fewer received bytes are answers to probes, and no download. */
const downloadBytesMin = 65_536;

interface StartReadingsOptions {
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly clock: Clock;
}

interface Reading extends StartReading {
  readonly output: string;
  /** Bytes when the download last grew; null if they are not counted. */
  readonly bytes: number | null;
  readonly atMs: number;
}

/** The last readings of what starting replicas write and download. */
export class StartReadings {
  readonly #options: StartReadingsOptions;
  readonly #readings = new Map<string, Reading>();
  /** When each replica was last read, in monotonic milliseconds. */
  readonly #readAtMs = new Map<string, number>();
  /** Replicas that are being read: a cache on a dead file server never answers. */
  readonly #running = new Set<string>();

  constructor(options: StartReadingsOptions) {
    this.#options = options;
  }

  /** Begins the readings that are due, and drops those of replicas that are no longer starting. */
  renew({ engines }: LeaderState): void {
    const nowMs = this.#options.clock.monotonicMs();
    const starting = new Set<string>();
    for (const engine of engines) {
      const everyMs = Math.min((engine.spec.definition.stalledMs ?? Infinity) / readingsPerStall, readEveryMsMax);
      for (const { id, phase } of engine.replicas) {
        if (phase !== 'creating' && phase !== 'starting') continue;
        starting.add(id);
        if (this.#running.has(id) || nowMs - (this.#readAtMs.get(id) ?? -Infinity) < everyMs) continue;
        this.#readAtMs.set(id, nowMs);
        void this.#read(engine, id);
      }
    }
    for (const kept of [this.#readings, this.#readAtMs])
      for (const id of kept.keys()) if (!starting.has(id)) kept.delete(id);
  }

  readings(): ReadonlyMap<string, StartReading> {
    return new Map(this.#readings);
  }

  async #read(engine: EngineState, replicaId: string): Promise<void> {
    this.#running.add(replicaId);
    try {
      const found = await this.#options.drivers.get(driverType(engine))?.activity(replicaId);
      // The replica may have ended meanwhile.
      if (!this.#readAtMs.has(replicaId)) return;
      if (!found) this.#readings.delete(replicaId);
      else
        this.#readings.set(replicaId, compare(this.#readings.get(replicaId), found, this.#options.clock.monotonicMs()));
    } catch {
      // A start that cannot be read may make progress.
      this.#readings.delete(replicaId);
    } finally {
      this.#running.delete(replicaId);
    }
  }
}

/**
 * Compares a reading with the one before. A download is shown from its first growth until the engine writes a line
 * without growth: engines write none while they download.
 */
function compare(before: Reading | undefined, found: StartActivity, nowMs: number): Reading {
  const { output, downloadedBytes: now } = found;
  const known = before?.bytes ?? null;
  const begun = { output, bytes: now, atMs: nowMs, download: null };
  if (before === undefined) return { ...begun, activity: activityOf(output, now) };
  const grownBytes = now === null || known === null ? 0 : now - known;
  if (grownBytes >= downloadBytesMin) {
    const bytesPerSecond = Math.round((grownBytes * 1000) / Math.max(1, nowMs - before.atMs));
    return { ...begun, activity: activityOf(output, now), download: { bytes: now ?? 0, bytesPerSecond } };
  }
  // An unfinished file that a new download replaced makes the sum smaller.
  const bytes = grownBytes < 0 || known === null ? now : known;
  const isOver = before.download === null || output !== before.output;
  const download = isOver ? null : { bytes: before.download.bytes, bytesPerSecond: 0 };
  return { output, bytes, atMs: nowMs, activity: activityOf(output, bytes), download };
}

function activityOf(output: string, bytes: number | null): string {
  return `${output} ${bytes ?? ''}`;
}
