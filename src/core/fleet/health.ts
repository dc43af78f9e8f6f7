import type { EngineKind } from '#core/catalog/catalog.ts';
import { askEngine } from './engine-http.ts';
import type { Replica } from './lease.ts';

const probeTimeoutMs = 2000;

/** `busy`: it was reached and did not answer in time, which under load means little when it happens once. */
export type Health = 'well' | 'busy' | 'ill';

/** Asks GET /health once. */
export async function probeHealth(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica.endpoint, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  if (answer === 'refused') return 'ill';
  return isHealthy(answer.status, replica.kind) ? 'well' : 'ill';
}

/** vLLM answers 200 when its model is loaded; another engine that has no such route answers 404 once it listens. */
function isHealthy(status: number, kind: EngineKind): boolean {
  return status === 200 || (kind === 'openai' && status === 404);
}
