import type { Model } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/fleet.ts';
import type { CacheSalts } from '#core/routing/routing.ts';
import type { InferenceRequest } from '#edge/inference/call/call.ts';
import { parseMember } from '#edge/inference/json-member.ts';

/** True if organizations share nothing in the model's engine except its time. Only vLLM can keep them apart. */
export function keepsApart({ engine }: Model): boolean {
  return engine.kind === 'vllm' && !engine.shareCache;
}

/** Returns the `cache_salt` for a replica; null leaves the client's own. */
export function cacheSaltOf(
  salts: CacheSalts,
  { caller, fields, model }: InferenceRequest,
  { kind }: Replica,
): string | null {
  if (kind !== 'vllm' || model.engine.shareCache) return null;
  const member = fields.members.get('cache_salt');
  const own = member === undefined ? null : parseMember(fields.text, member);
  return salts.of(caller.key.organizationId, typeof own === 'string' ? own : null);
}
