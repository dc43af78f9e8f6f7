import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

/** A replica that the fleet runs, with the name of its host. */
export interface PlacedReplica {
  readonly replica: Replica;
  readonly host: string;
}

/** A replica's answer to GET /metrics. */
export interface ReplicaMetrics {
  readonly engineId: string;
  readonly replicaId: string;
  readonly host: string;
  /** Prometheus' text format, at most 4 MiB; null if the replica did not answer in time. */
  readonly text: string | null;
}

const answerTimeoutMs = 2000;
/** Stays below Prometheus' default scrape timeout of 10 seconds. */
const allTimeoutMs = 7000;
const atOnceMax = 16;

/** Reads the metrics of replicas, some at a time. Replicas that no time is left for count as silent. */
export async function readReplicaMetrics(
  replicas: readonly PlacedReplica[],
  take: (metrics: ReplicaMetrics) => void,
): Promise<void> {
  const endMs = performance.now() + allTimeoutMs;
  const left = replicas.values();
  const work = async (): Promise<void> => {
    for (const { replica, host } of left) {
      const { engineId, id: replicaId } = replica;
      take({ engineId, replicaId, host, text: await readText(replica, endMs - performance.now()) });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnceMax, replicas.length) }, work));
}

async function readText(replica: Replica, leftMs: number): Promise<string | null> {
  if (leftMs <= 0) return null;
  const timeoutMs = Math.min(answerTimeoutMs, leftMs);
  const answer = await askEngine(replica, { method: 'GET', path: '/metrics', timeoutMs });
  return typeof answer === 'string' || answer.status !== 200 ? null : answer.text;
}
