import type { EngineKind } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

const probeTimeoutMs = 2000;

/**
 * Result of a probe. `busy`: the engine was reached and did not answer in time, which under load means little if it
 * happens once.
 */
export type Health = 'well' | 'busy' | 'ill';

/** Requests GET /health once. */
export async function probeHealth(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica.endpoint, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  if (answer === 'refused') return 'ill';
  return isHealthy(answer.status, replica.kind) ? 'well' : 'ill';
}

/**
 * Probes that this replica itself answers at its address. GET /health requires no key, but GET /v1/models does: another
 * replica, started at the address of a removed container, rejects this replica's key.
 */
export async function probeOwn(replica: Replica): Promise<Health> {
  const health = await probeHealth(replica);
  if (health !== 'well') return health;
  const answer = await askEngine(replica, { method: 'GET', path: '/v1/models', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status === 401 ? 'ill' : 'well';
}

/**
 * Probes an external server. Many of these servers have no GET /health, or require a key for it. A server is ill only
 * if it is unreachable or reports an error of its own.
 */
export async function probeServer(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status >= 500 ? 'ill' : 'well';
}

/** vLLM answers 200 once its model is loaded; another engine without this route answers 404 once it listens. */
function isHealthy(status: number, kind: EngineKind): boolean {
  return status === 200 || (kind === 'openai' && status === 404);
}
