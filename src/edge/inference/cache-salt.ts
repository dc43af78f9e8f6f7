import type { Model } from '#core/catalog/catalog.ts';
import type { CacheSalts } from '#core/routing/routing.ts';
import type { InferenceRequest } from './call.ts';
import { parseMember } from './member.ts';

/** Whether organizations have nothing in common in the model's engine but its time. Only vLLM can keep them apart. */
export function keepsApart({ engine }: Model): boolean {
  return engine.kind === 'vllm' && !engine.shareCache;
}

/** The `cache_salt` that the engine gets; null leaves what the client sent. */
export function cacheSaltOf(salts: CacheSalts, { caller, fields, model }: InferenceRequest): string | null {
  if (!keepsApart(model)) return null;
  const member = fields.members.get('cache_salt');
  const own = member === undefined ? null : parseMember(fields.text, member);
  return salts.of(caller.key.organizationId, typeof own === 'string' ? own : null);
}
