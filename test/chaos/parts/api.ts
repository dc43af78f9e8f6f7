import type { Body } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';

export interface Call {
  readonly method?: string;
  readonly body?: object;
  /** The platform administrator's otherwise. */
  readonly key?: string;
  readonly timeoutMs?: number;
}

export interface Told {
  /** 0 where nobody answered. */
  readonly status: number;
  readonly body: Body;
  readonly headers: Headers;
}

/** Ends what hangs. Copies of clusters are made in this process: a busy disk holds it up. */
const defaultTimeoutMs = 120_000;

/** Calls the JSON API; that it refuses, or is not there, is an answer. */
export async function callApi(url: string, path: string, call: Call = {}): Promise<Told> {
  const { body, key = givenKey, method = body === undefined ? 'GET' : 'POST', timeoutMs = defaultTimeoutMs } = call;
  try {
    const answer = await fetch(new URL(path, url), {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const text = await answer.text();
    return { status: answer.status, body: parse(text), headers: answer.headers };
  } catch (error) {
    return { status: 0, body: { error: { code: String(error) } }, headers: new Headers() };
  }
}

function parse(text: string): Body {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Calls the API for a row that cannot begin without it. @throws Error with the answer that came instead */
export async function mustApi(url: string, path: string, call: Call = {}): Promise<Body> {
  const { status, body } = await callApi(url, path, call);
  if (status < 200 || status > 299) throw new Error(`${call.method ?? ''} ${path}: ${status} ${JSON.stringify(body)}`);
  return body;
}

export interface Organization {
  /** As the books have it. */
  readonly id: string;
  /** As the API shows it. */
  readonly shownId: string;
  readonly managementKey: string;
  readonly creditUsd: string;
}

export interface InferenceKey {
  readonly organization: Organization;
  readonly shownId: string;
  readonly secret: string;
}

const unlimited = {
  requests_per_minute: null,
  max_concurrency: null,
  tokens_per_minute: null,
  monthly_token_limit: null,
};

export async function openOrganization(url: string, creditUsd: string): Promise<Organization> {
  const made = await mustApi(url, '/v1/organizations', { body: { name: `Organization ${Math.random()}` } });
  const credit = { organization_id: made.id, amount: creditUsd, reference: 'opening' };
  await mustApi(url, '/v1/wallet/credits', { body: credit });
  return { id: uuidOf(made.id), shownId: made.id, managementKey: made.management_key, creditUsd };
}

/** @param limits over those of a key without any */
export async function openKey(url: string, organization: Organization, limits: object = {}): Promise<InferenceKey> {
  const body = { name: 'chaos', ...unlimited, ...limits };
  const made = await mustApi(url, '/v1/keys', { body, key: organization.managementKey });
  return { organization, shownId: made.id, secret: made.secret };
}

function uuidOf(shownId: string): string {
  const digits = shownId.replace(/^[a-z]+_/, '');
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
