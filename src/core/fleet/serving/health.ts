import type { EngineKind } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

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

/**
 * Whether what answers at its address is this replica and well: its key opens, where another one that was started at
 * the address of a container that is gone refuses it. GET /health asks for no key.
 */
export async function probeOwn(replica: Replica): Promise<Health> {
  const health = await probeHealth(replica);
  if (health !== 'well') return health;
  const answer = await askEngine(replica, { method: 'GET', path: '/v1/models', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status === 401 ? 'ill' : 'well';
}

/**
 * Whether a server that somebody else runs answers. Many such have no GET /health, or want a key for it: only what
 * says of itself that something is wrong is ill.
 */
export async function probeServer(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status >= 500 ? 'ill' : 'well';
}

/** vLLM answers 200 when its model is loaded; another engine that has no such route answers 404 once it listens. */
function isHealthy(status: number, kind: EngineKind): boolean {
  return status === 200 || (kind === 'openai' && status === 404);
}
