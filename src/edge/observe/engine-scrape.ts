import type { Metrics } from '#base/metrics.ts';
import { mergeMetrics } from '#base/prometheus-merge.ts';
import { familyText, labelsText, sampleText } from '#base/prometheus-text.ts';
import type { Fleet, ReplicaMetrics } from '#core/fleet/fleet.ts';

/** The engines' own metrics, passed on: engines are in networks that no monitoring reaches. */
export interface EngineScrape {
  /** Asks the replicas that this gateway starts and stops; who asks meanwhile gets the same answer. Rejects never. */
  text(): Promise<string>;
}

/** vLLM's own; what Python tells of its process would only be mistaken for the gateway's. */
const takes = (name: string): boolean => name.startsWith('vllm:') && !name.endsWith('_created');
/** Of all replicas together: some hundreds of vLLM's. */
const charsMax = 16_777_216;

export function createEngineScrape(metrics: Metrics, fleet: Pick<Fleet, 'readMetrics'>): EngineScrape {
  const failures = metrics.counter({
    name: 'headgate_engine_metrics_failures_total',
    help: 'Times that a replica did not answer for its metrics, or that there was no room for them',
    labelNames: ['engine'],
  });
  let running: Promise<string> | null = null;

  async function read(): Promise<string> {
    const merged = mergeMetrics({ takes, charsMax });
    const ups: string[] = [];
    await fleet.readMetrics(({ engineId, replicaId, host, text }: ReplicaMetrics) => {
      const labels = { model: engineId, replica: replicaId, host };
      const isUp = text !== null && merged.add(text, labels);
      if (!isUp) failures.of(engineId).add(1);
      ups.push(sampleText(upName, labelsText(Object.keys(labels), Object.values(labels)), Number(isUp)));
    });
    const help = '1 where a replica answered for its metrics, which follow; 0 where they are left out';
    return `${familyText(upName, help, 'gauge', ups.toSorted())}${merged.text()}`;
  }

  return {
    text() {
      running ??= read().finally(() => {
        running = null;
      });
      return running;
    },
  };
}

const upName = 'headgate_replica_metrics_up';
