import {
  chatBody,
  chatPath,
  openOrganization,
  readMetric,
  type Body,
  type InferenceBench,
} from '#test/inference/inference-gateway.ts';
import type { RequestOptions } from '#test/gateway.ts';

/** An organization of its own whose key asks for something, with what is needed to hold its requests to account. */
export interface ReuseBench {
  readonly organizationId: string;
  /** A management key of the organization, without toggles. */
  readonly managementKey: string;
  readonly key: string;
  readonly keyId: string;
  readonly chat: (body: object, options?: RequestOptions) => Promise<Response>;
  /** Requests that the engine has finished. */
  readonly asked: (engineId?: string) => Promise<number>;
}

export async function openReuse(bench: InferenceBench, toggles: object, usd = '5.00'): Promise<ReuseBench> {
  const organization = await openOrganization(bench.gateway, usd);
  const made = await makeKey(bench, organization.key, toggles);
  return {
    organizationId: organization.id,
    managementKey: organization.key,
    key: made.secret,
    keyId: made.id,
    chat: (body, options) => bench.post(chatPath, chatBody(body), { key: made.secret, ...options }),
    asked: (engineId = 'chat') => readMetric(bench.socketOf(engineId), 'vllm:request_success_total'),
  };
}

export async function makeKey(bench: InferenceBench, managementKey: string, fields: object): Promise<Body> {
  const limits = { requests_per_minute: null, max_concurrency: null };
  const answer = await bench.gateway.request('/v1/keys', { key: managementKey, body: { ...limits, ...fields } });
  const made: Body = await answer.json();
  if (answer.status !== 201) throw new Error(JSON.stringify(made));
  return made;
}

let made = 0;

/** A message that no other test sends. */
export function fresh(text = 'Hello'): { messages: object[] } {
  made += 1;
  return { messages: [{ role: 'user', content: `${text} ${made} ${Math.random()}` }] };
}
