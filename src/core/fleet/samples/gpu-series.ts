import type { GpuUse } from '#core/fleet/drivers/drivers.ts';
import { isOutdated, keep } from './kept.ts';

/** A GPU at one time. */
export interface GpuPoint {
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
  readonly usedBytes: number;
  readonly totalBytes: number;
  /** Share of the time in which the GPU computed; null if the driver does not report it. */
  readonly busy: number | null;
}

/** A GPU over the last hour, oldest first. */
export interface GpuSeries {
  readonly host: string;
  readonly gpuId: string;
  readonly points: readonly GpuPoint[];
}

/** The GPUs of one engine over the last hour. */
export class GpuHistory {
  readonly #everyMs: number;
  readonly #series = new Map<string, { readonly host: string; readonly gpuId: string; readonly points: GpuPoint[] }>();

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  add(host: string, uses: readonly GpuUse[], atMs: number): void {
    for (const { gpuId, usedBytes, totalBytes, busy } of uses) {
      const key = `${host}\n${gpuId}`;
      const series = this.#series.get(key) ?? { host, gpuId, points: [] };
      this.#series.set(key, series);
      keep(series.points, { atMs, usedBytes, totalBytes, busy }, this.#everyMs);
    }
  }

  /** Drops GPUs that the engine has not used for an hour. @returns true if none is left */
  forget(nowMs: number): boolean {
    for (const [key, { points }] of this.#series) if (isOutdated(points, nowMs)) this.#series.delete(key);
    return this.#series.size === 0;
  }

  series(): readonly GpuSeries[] {
    return [...this.#series.values()];
  }
}
