import type { Clock } from '#base/clock.ts';
import type { DriverType, GpuUse, Placement, Replica } from '#core/fleet/drivers/drivers.ts';
import { readEngine } from '#core/fleet/serving/serving.ts';
import { GpuHistory, type GpuSeries } from './gpu-series.ts';
import { type LoadPoint, LoadSeries } from './load-series.ts';

/** A replica that runs, as this gateway sees it. */
export interface RunningReplica {
  readonly replica: Replica;
  readonly placement: Placement;
  readonly driver: DriverType;
  /** True if the replica is ready and has the metrics of vLLM. */
  readonly hasMetrics: boolean;
  /** Returns the use of the replica's GPUs; null if it cannot be read. */
  readonly readGpus: () => Promise<readonly GpuUse[] | null>;
}

/** The samples of an engine in the last hour, oldest first. */
export interface EngineSamples {
  readonly load: readonly LoadPoint[];
  readonly gpus: readonly GpuSeries[];
}

const loadEveryMs = 15_000;
/** Reading the GPUs of a Docker host takes a short-lived container; reading those of this machine takes a program. */
const gpuEveryMs: Readonly<Partial<Record<DriverType, number>>> = { process: 15_000, docker: 60_000 };

/** Samples one engine. */
export class SampledEngine {
  readonly #clock: Clock;
  readonly #load = new LoadSeries(loadEveryMs);
  readonly #gpus = new GpuHistory(loadEveryMs);
  readonly #readings = new Set<Promise<void>>();
  #loadAtMs = -Infinity;
  /** When the GPUs of each replica were last read. */
  #gpusAtMs: ReadonlyMap<string, number> = new Map();
  #isReading = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes the samples that are due. */
  sample(replicas: readonly RunningReplica[]): void {
    this.sampleLoad(replicas, loadEveryMs);
    const nowMs = this.#clock.monotonicMs();
    const readAtMs = new Map<string, number>();
    for (const one of replicas) {
      const { replica, driver, placement } = one;
      const everyMs = gpuEveryMs[driver];
      if (everyMs === undefined || placement.gpuIds.length === 0) continue;
      const beforeMs = this.#gpusAtMs.get(replica.id) ?? -Infinity;
      const isDue = nowMs - beforeMs >= everyMs;
      readAtMs.set(replica.id, isDue ? nowMs : beforeMs);
      if (isDue) this.#follow(this.#readGpus(one));
    }
    this.#gpusAtMs = readAtMs;
  }

  /** Reads the load if the last reading is that old. */
  sampleLoad(replicas: readonly RunningReplica[], everyMs: number): void {
    const answering = replicas.filter(({ hasMetrics }) => hasMetrics);
    const nowMs = this.#clock.monotonicMs();
    if (answering.length === 0 || this.#isReading || nowMs - this.#loadAtMs < everyMs) return;
    this.#loadAtMs = nowMs;
    this.#follow(this.#readLoad(answering));
  }

  samples(): EngineSamples {
    return { load: this.#load.points(), gpus: this.#gpus.series() };
  }

  /** Drops outdated samples. @returns true if none is left */
  forget(): boolean {
    const nowMs = this.#clock.now();
    return this.#gpus.forget(nowMs) && this.#load.isOutdated(nowMs);
  }

  /** Waits for the readings that have begun. */
  async settled(): Promise<void> {
    await Promise.all(this.#readings);
  }

  #follow(reading: Promise<void>): void {
    const ended = reading.finally(() => this.#readings.delete(ended));
    this.#readings.add(ended);
  }

  async #readLoad(replicas: readonly RunningReplica[]): Promise<void> {
    this.#isReading = true;
    const found = await Promise.all(
      replicas.map(async ({ replica }) => [replica.id, await readEngine(replica)] as const),
    );
    this.#load.add(new Map(found), this.#clock.now());
    this.#isReading = false;
  }

  async #readGpus({ placement, readGpus }: RunningReplica): Promise<void> {
    const uses = await readGpus().catch(() => null);
    if (uses !== null) this.#gpus.add(placement.host, uses, this.#clock.now());
  }
}
