import { z } from 'zod';
import { containerBody, networkBody, networkConnectBody, type BodyProblem } from './bodies.ts';
import { gatewayLabel, id, managedLabel, network, type Policy, type Rule, type Target } from './rule.ts';
import { overlayBody } from './swarm-bodies.ts';
import { swarmRules } from './swarm-calls.ts';

export type { Policy } from './rule.ts';

/** A call as it came. */
export interface IncomingCall {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly body: string;
}

/** A call as it is passed on, every byte of it made here. */
export interface DockerCall {
  readonly method: string;
  readonly path: string;
  readonly body: string | null;
  readonly targets: readonly Target[];
  readonly passesRegistryAuth: boolean;
}

export interface Refusal {
  readonly refusal: string;
}

const imageName = '([a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,511})';

const container =
  (...labels: string[]) =>
  (name: string, prefix: string): Target[] => [{ path: `${prefix}/containers/${name}/json`, labels }];

const connectTargets = (body: unknown, prefix: string): readonly Target[] =>
  container(managedLabel, gatewayLabel)((body as { Container: string }).Container, prefix);

/** Every call of the docker driver. Names are those of the Engine API 1.41. */
const rules: readonly Rule[] = [
  { method: 'GET', path: /^\/_ping$/ },
  { method: 'HEAD', path: /^\/_ping$/ },
  { method: 'GET', path: /^\/version$/ },
  { method: 'GET', path: /^\/info$/ },
  { method: 'GET', path: /^\/events$/, query: ['since', 'until', 'filters'], isFiltered: true },
  { method: 'GET', path: /^\/containers\/json$/, query: ['all', 'limit', 'size', 'filters'], isFiltered: true },
  {
    method: 'GET',
    path: new RegExp(`^/containers/${id}/json$`),
    query: ['size'],
    targets: container(managedLabel, gatewayLabel),
  },
  {
    method: 'GET',
    path: new RegExp(`^/containers/${id}/logs$`),
    query: ['follow', 'stdout', 'stderr', 'since', 'until', 'timestamps', 'tail'],
    targets: container(managedLabel),
  },
  {
    method: 'POST',
    path: /^\/containers\/create$/,
    query: ['name', 'platform'],
    check: nameCheck,
    body: containerBody,
  },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/attach$`),
    query: ['stream', 'stdout', 'stderr', 'logs'],
    targets: container(managedLabel),
  },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/rename$`),
    query: ['name'],
    check: nameCheck,
    targets: container(managedLabel),
  },
  { method: 'POST', path: new RegExp(`^/containers/${id}/start$`), targets: container(managedLabel) },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/(?:stop|kill|wait)$`),
    query: ['t', 'signal', 'condition'],
    targets: container(managedLabel),
  },
  {
    method: 'DELETE',
    path: new RegExp(`^/containers/${id}$`),
    query: ['force', 'v'],
    targets: container(managedLabel),
  },
  { method: 'GET', path: new RegExp(`^/images/${imageName}/json$`) },
  {
    method: 'POST',
    path: /^\/images\/create$/,
    query: ['fromImage', 'tag', 'platform'],
    check: imageCheck,
    passesRegistryAuth: true,
  },
  { method: 'GET', path: /^\/networks$/, query: ['filters'], isFiltered: true },
  { method: 'GET', path: new RegExp(`^/networks/${id}$`), targets: network },
  { method: 'POST', path: /^\/networks\/create$/, body: createdNetwork },
  {
    method: 'POST',
    path: new RegExp(`^/networks/${id}/(?:connect|disconnect)$`),
    targets: network,
    body: networkConnectBody,
    bodyTargets: connectTargets,
  },
  { method: 'DELETE', path: new RegExp(`^/networks/${id}$`), targets: network },
];

function createdNetwork(policy: Policy, body: unknown): z.ZodType {
  const isOverlay = (body as { Driver?: unknown } | null)?.Driver === 'overlay';
  return policy.allowsSwarm && isOverlay ? overlayBody() : networkBody();
}

function nameCheck(_policy: Policy, query: URLSearchParams): string | null {
  return (query.get('name') ?? '').startsWith('headgate-') ? null : 'The name must begin with headgate-.';
}

function imageCheck({ isAllowedImage }: Policy, query: URLSearchParams): string | null {
  const name = query.get('fromImage') ?? '';
  const tag = query.get('tag') ?? '';
  const image = tag === '' ? name : `${name}${tag.startsWith('sha256:') ? '@' : ':'}${tag}`;
  return isAllowedImage(image) ? null : `The image ${image} is not among HEADGATE_DOCKER_IMAGES.`;
}

/** What becomes of a call: passed on in this form once its targets are found to be ours, or refused. */
export function decide(policy: Policy, { method, url, body }: IncomingCall): DockerCall | Refusal {
  const found = findRule(policy, method, url);
  if ('refusal' in found) return found;
  const { rule, prefix, path, name } = found;
  const query = readQuery(found.query, rule);
  if ('refusal' in query) return query;
  const problem = rule.check?.(policy, query.params) ?? null;
  if (problem !== null) return { refusal: problem };
  const checked = readBody(policy, rule, body);
  if ('refusal' in checked) return checked;
  const search = query.params.size === 0 ? '' : `?${query.params.toString()}`;
  return {
    method,
    path: `${prefix}${path}${search}`,
    body: checked.text,
    targets: [...(rule.targets?.(name, prefix) ?? []), ...(rule.bodyTargets?.(checked.value, prefix, name) ?? [])],
    passesRegistryAuth: rule.passesRegistryAuth === true,
  };
}

interface FoundRule {
  readonly rule: Rule;
  /** `/v1.41`, or nothing. */
  readonly prefix: string;
  readonly path: string;
  readonly name: string;
  readonly query: string;
}

function findRule({ allowsSwarm }: Policy, method: string, url: string): FoundRule | Refusal {
  const [rawPath = '', query = '', ...more] = url.split('?');
  const prefix = /^\/v1\.\d{1,3}(?=\/)/.exec(rawPath)?.[0] ?? '';
  const path = rawPath.slice(prefix.length);
  // Nothing that a reader behind could resolve to another path.
  if (more.length > 0 || /%|\/\/|\/\.|\\/.test(path)) return { refusal: 'The address is malformed.' };
  const isIt = (candidate: Rule): boolean => candidate.method === method && candidate.path.test(path);
  const ofSwarm = swarmRules.find(isIt);
  if (ofSwarm !== undefined && !allowsSwarm) return { refusal: 'Calls of a swarm need HEADGATE_DOCKER_SWARM.' };
  const rule = rules.find(isIt) ?? ofSwarm;
  if (rule === undefined) return { refusal: 'This call is not among those that a gateway makes.' };
  return { rule, prefix, path, query, name: rule.path.exec(path)?.[1] ?? '' };
}

const filtersSchema = z.record(
  z.string(),
  z.union([z.array(z.string()), z.record(z.string(), z.boolean()).transform((values) => Object.keys(values))]),
);

function readQuery(text: string, rule: Rule): { readonly params: URLSearchParams } | Refusal {
  const params = new URLSearchParams(text);
  const names = [...params.keys()];
  if (new Set(names).size !== names.length) return { refusal: 'The query has a name twice.' };
  const unknown = names.find((name) => rule.query?.includes(name) !== true);
  if (unknown !== undefined) return { refusal: `The query may not have ${unknown.slice(0, 50)}.` };
  if (rule.isFiltered !== true) return { params };
  const filters = parseJson(filtersSchema, params.get('filters') ?? '{}');
  if (filters === null) return { refusal: 'The filters are malformed.' };
  const label = [...(filters['label'] ?? []), managedLabel];
  params.set('filters', JSON.stringify({ ...filters, label }));
  return { params };
}

function readBody(policy: Policy, rule: Rule, text: string): { text: string | null; value: unknown } | Refusal {
  if (rule.body === undefined) {
    const isEmpty = text === '' || text.trim() === '{}' || text.trim() === 'null';
    return isEmpty ? { text: null, value: null } : { refusal: 'This call has no body.' };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { refusal: 'The body is not JSON.' };
  }
  const parsed = rule.body(policy, value).safeParse(value);
  if (parsed.success) return { text: JSON.stringify(parsed.data), value: parsed.data };
  return { refusal: describe(parsed.error.issues[0]) };
}

function describe(problem: BodyProblem | undefined): string {
  if (problem === undefined) return 'The body is not allowed.';
  return `${problem.path.map(String).join('.').slice(0, 100)}: ${problem.message.slice(0, 200)}`;
}

function parseJson<T>(schema: z.ZodType<T>, text: string): T | null {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
