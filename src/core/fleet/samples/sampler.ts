import type { Clock } from '#base/clock.ts';
import { createPacedLoop } from '#base/queues/queues.ts';
import { type EngineSamples, type RunningReplica, SampledEngine } from './sampled-engine.ts';

export interface Sampler {
  start(): void;
  /** Returns the samples of an engine, and soon takes a new one of its load, because somebody looks at it. */
  samples(engineId: string): EngineSamples;
  close(): Promise<void>;
}

interface SamplerOptions {
  readonly clock: Clock;
  readonly running: () => readonly RunningReplica[];
}

/** Interval at which due samples are looked for. */
const tickMs = 1000;

/** Samples each engine at its intervals. Readings that take long delay only the next one of the same engine. */
export function createSampler({ clock, running }: SamplerOptions): Sampler {
  const engines = new Map<string, SampledEngine>();

  function engineOf(id: string): SampledEngine {
    const engine = engines.get(id) ?? new SampledEngine(clock);
    engines.set(id, engine);
    return engine;
  }

  const loop = createPacedLoop(() => {
    const byEngine = Map.groupBy(running(), ({ replica }) => replica.engineId);
    for (const [id, replicas] of byEngine) engineOf(id).sample(replicas);
    for (const [id, engine] of engines) if (engine.forget() && !byEngine.has(id)) engines.delete(id);
    return Promise.resolve(tickMs);
  });

  return {
    start: () => loop.start(tickMs),
    samples(engineId) {
      const replicas = running().filter(({ replica }) => replica.engineId === engineId);
      if (replicas.length > 0) engineOf(engineId).sampleLoad(replicas, tickMs);
      return engines.get(engineId)?.samples() ?? { load: [], gpus: [] };
    },
    async close() {
      await loop.close();
      await Promise.all([...engines.values()].map((engine) => engine.settled()));
    },
  };
}
