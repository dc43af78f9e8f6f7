import type { JsonMember } from '#base/json/json.ts';
import type { Affinity, PromptText, ReplicaOutcome } from '#core/routing/routing.ts';
import type { Outcome } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import type { Endpoint, RequestFields } from '#edge/inference/request/request.ts';
import { keepsApart } from './cache-salt.ts';

/** Members that engines put before a prompt or build it with. Requests that differ in one of these share no prefix. */
const contextKeys = [
  'tools',
  'instructions',
  'reasoning',
  'documents',
  'chat_template',
  'chat_template_kwargs',
  'reasoning_effort',
  'cache_salt',
] as const;

/** Members with which a client marks requests that belong together, in OpenAI's order of precedence. */
const stickyKeys = ['prompt_cache_key', 'user'] as const;
const stickyBytesMax = 512;

/** Spreads the parts of one request over replicas, whatever the request contains. */
const anywhere: Affinity = { prompt: () => null, stickyKey: () => null };

/** Returns what decides the preferred replica of a request, by offsets: nothing is parsed or copied. */
export function affinityOf({ endpoint, part }: RoutedCall, { caller, fields, model }: RoutedRequest): Affinity {
  if (part !== null) return anywhere;
  const { organizationId } = caller.key;
  return {
    // A prompt that an engine has cached for one adapter serves no other adapter.
    prompt: () => promptOf(fields, endpoint, `${keepsApart(model) ? organizationId : ''}${model.adapter?.id ?? ''}`),
    stickyKey: () => stickyKeyOf(fields, organizationId),
  };
}

type RoutedCall = Pick<Call, 'endpoint' | 'part'>;
type RoutedRequest = Pick<InferenceRequest, 'caller' | 'fields' | 'model'>;

/** Returns what an outcome shows about the replica: not every failed request is the replica's fault. */
export function replicaOutcome({ kind, error, unreachable, isDoubtful }: Outcome): ReplicaOutcome {
  if (unreachable) return 'unreachable';
  // A caller who repeats a request that fails everywhere would take replicas from all others. A broken replica also
  // fails other requests.
  if (isDoubtful) return 'unknown';
  if (kind === 'completed') return 'answered';
  if (kind !== 'failed') return 'unknown';
  return error?.code === 'upstream_error' ? 'failed' : 'answered';
}

function promptOf({ text, members }: RequestFields, { promptKey }: Endpoint, scope: string): PromptText | null {
  const member = promptKey === null ? undefined : members.get(promptKey);
  if (member === undefined) return null;
  const context = contextKeys
    .map((name) => members.get(name))
    .filter((found): found is JsonMember => found !== undefined)
    .map(({ keyStart, valueEnd }) => ({ start: keyStart, end: valueEnd }));
  return { text, scope, context, prompt: { start: member.valueStart, end: member.valueEnd } };
}

/** Returns the value as sent, with quotes and escapes: only equality of keys matters. */
function stickyKeyOf({ text, members }: RequestFields, organizationId: string): string | null {
  for (const key of stickyKeys) {
    const member = members.get(key);
    // A value that is no string, or an empty one, names nothing.
    if (
      member === undefined ||
      text.slice(member.valueStart, member.valueStart + 1) !== '"' ||
      member.valueEnd - member.valueStart <= 2
    )
      continue;
    const value = text.slice(member.valueStart, Math.min(member.valueEnd, member.valueStart + stickyBytesMax));
    return `${organizationId}\n${key}\n${value}`;
  }
  return null;
}
