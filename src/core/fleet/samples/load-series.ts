import type { EngineReading } from '#core/fleet/serving/serving.ts';
import { isOutdated, keep } from './kept.ts';

/** The load of an engine at one time, summed over its replicas. null: the engine does not report the value. */
export interface LoadPoint {
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
  /** Requests of all gateways that run, and that wait inside the engine. */
  readonly running: number;
  readonly waiting: number;
  /** Highest share of the cache of keys and values that is in use in a replica. */
  readonly kvCacheUse: number | null;
  /** Since the sample before; null for the first one and after a gap. */
  readonly promptTokensPerSecond: number | null;
  readonly generationTokensPerSecond: number | null;
}

interface Tokens {
  readonly prompt: number;
  readonly generation: number;
}

interface Kept extends Pick<LoadPoint, 'atMs' | 'running' | 'waiting' | 'kvCacheUse'> {
  /** Tokens that were counted since the gateway started. */
  readonly tokens: Tokens;
}

/** Readings further apart have no rate: the engine was stopped or did not answer. */
const gapsPerRate = 4;

/** The load of one engine over the last hour. */
export class LoadSeries {
  readonly #everyMs: number;
  readonly #kept: Kept[] = [];
  /** Counters of each replica at its last reading. */
  #counters: ReadonlyMap<string, Tokens> = new Map();
  #tokens: Tokens = { prompt: 0, generation: 0 };

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  /** @param readings by replica id, of one engine at one time */
  add(readings: ReadonlyMap<string, EngineReading>, atMs: number): void {
    const loads = [...readings.values()].flatMap(({ load }) => (typeof load === 'object' ? [load] : []));
    this.#count(readings);
    if (loads.length === 0) return;
    const used = [...readings.values()].flatMap(({ kvCacheUse }) => kvCacheUse ?? []);
    const sample = {
      atMs,
      running: loads.reduce((sum, { running }) => sum + running, 0),
      waiting: loads.reduce((sum, { waiting }) => sum + waiting, 0),
      kvCacheUse: used.length === 0 ? null : Math.max(...used),
      tokens: this.#tokens,
    };
    keep(this.#kept, sample, this.#everyMs);
  }

  /** Adds what each replica has counted since its last reading. A restarted process counts from 0. */
  #count(readings: ReadonlyMap<string, EngineReading>): void {
    let { prompt, generation } = this.#tokens;
    const next = new Map<string, Tokens>();
    for (const [id, { counters }] of readings) {
      const before = this.#counters.get(id);
      const now = counters === null ? before : { prompt: counters.promptTokens, generation: counters.generationTokens };
      if (now === undefined) continue;
      next.set(id, now);
      if (before === undefined) continue;
      prompt += Math.max(0, now.prompt - before.prompt);
      generation += Math.max(0, now.generation - before.generation);
    }
    this.#counters = next;
    this.#tokens = { prompt, generation };
  }

  isOutdated(nowMs: number): boolean {
    return isOutdated(this.#kept, nowMs);
  }

  points(): readonly LoadPoint[] {
    return this.#kept.map(({ tokens, ...point }, index) => {
      const before = this.#kept[index - 1];
      const seconds = before === undefined ? Infinity : (point.atMs - before.atMs) / 1000;
      const isKnown = this.#counters.size > 0 && seconds > 0 && seconds * 1000 <= gapsPerRate * this.#everyMs;
      const rate = (kind: keyof Tokens): number | null =>
        before === undefined || !isKnown ? null : (tokens[kind] - before.tokens[kind]) / seconds;
      return { ...point, promptTokensPerSecond: rate('prompt'), generationTokensPerSecond: rate('generation') };
    });
  }
}
