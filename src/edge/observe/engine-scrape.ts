import { familyText, labelsText, mergeMetrics, type Metrics, sampleText } from '#base/metrics/metrics.ts';
import type { Fleet, ReplicaMetrics } from '#core/fleet/fleet.ts';

/** Passes on the engines' own metrics, because monitoring cannot reach the engines' networks. */
export interface EngineScrape {
  /** Reads the metrics of replicas that this gateway manages. Concurrent calls share one answer. Never rejects. */
  text(): Promise<string>;
}

/** True for vLLM's own metrics. Metrics of the Python process would be mistaken for the gateway's. */
const takes = (name: string): boolean => name.startsWith('vllm:') && !name.endsWith('_created');
/** Most characters for all replicas together: enough for several hundred vLLM replicas. */
const charsMax = 16_777_216;

export function createEngineScrape(metrics: Metrics, fleet: Pick<Fleet, 'readMetrics'>): EngineScrape {
  const failures = metrics.counter({
    name: 'headgate_engine_metrics_failures_total',
    help: 'Failed reads of the metrics of a replica: no answer, or all metrics together were too large',
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
    const help = '1 if the metrics of a replica could be read and are listed here, else 0';
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
