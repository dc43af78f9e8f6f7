import { z } from 'zod';
import { type BodyProblem, connectBody, containerBody, disconnectBody, isProbe, networkBody } from './bodies.ts';
import { isAllowedImage, pulledImage } from './images.ts';
import {
  container,
  count,
  flag,
  gatewayLabel,
  id,
  managedLabel,
  network,
  ownName,
  type Policy,
  probeName,
  type Rule,
  runLabel,
  stoppingName,
  type Target,
  settingNames,
} from './rule.ts';
import { keeperOf, marksOf, runContainerName, runNetworkName, runPhaseName } from './run-bodies.ts';
import { overlayBody } from './swarm-bodies.ts';
import { swarmRules } from './swarm-calls.ts';

export type { Policy } from './rule.ts';

/** A call as received. */
export interface IncomingCall {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly body: string;
}

/** A call to pass on, rebuilt completely from parsed values. */
export interface DockerCall {
  readonly method: string;
  /** Path with API version and query. */
  readonly path: string;
  readonly body: string | null;
  readonly targets: readonly Target[];
  readonly passesRegistryAuth: boolean;
  /** True if the call's unread body is a tar file. */
  readonly takesArchive: boolean;
}

export interface Refusal {
  readonly refusal: string;
}

const imageName = '([a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,511})';

function createTargets(body: unknown, prefix: string): readonly Target[] {
  if (isProbe(body)) return [];
  // Found by its name: no other container can have the name of such a container.
  const keeper = marksOf(body) === null ? null : keeperOf(body);
  if (keeper !== null) return container(runLabel)(keeper, prefix).map((target) => ({ ...target, place: null }));
  const { NetworkMode: name } = (body as { HostConfig: { NetworkMode: string } }).HostConfig;
  // A network on the list belongs to an operator and has no label.
  if (!ownName.test(name)) return [];
  // Found by the name under which the driver finds it again: no other network can have such a name.
  return network(name, prefix).map((target) => ({ ...target, place: null }));
}

function connectTargets(body: unknown, prefix: string): readonly Target[] {
  const { Container: name, Force: isEnd } = body as { Container: string; Force?: boolean };
  const found = container(managedLabel, gatewayLabel)(name, prefix);
  return found.map((target) => ({ ...target, place: ['Container'], mayBeDeleted: isEnd === true }));
}

/** All calls of the docker driver. Names are from the Engine API 1.41. */
const rules: readonly Rule[] = [
  { method: 'GET', path: /^\/_ping$/ },
  { method: 'HEAD', path: /^\/_ping$/ },
  { method: 'GET', path: /^\/version$/ },
  { method: 'GET', path: /^\/info$/ },
  { method: 'GET', path: /^\/events$/, filters: ['type'] },
  { method: 'GET', path: /^\/containers\/json$/, query: { all: flag }, filters: ['network'] },
  { method: 'GET', path: new RegExp(`^/containers/${id}/json$`), targets: container(managedLabel, gatewayLabel) },
  {
    method: 'GET',
    path: new RegExp(`^/containers/${id}/logs$`),
    query: { follow: flag, stdout: flag, stderr: flag, tail: count },
    targets: container(managedLabel),
  },
  {
    method: 'GET',
    path: new RegExp(`^/containers/${id}/stats$`),
    query: { stream: /^(?:false|0)$/, 'one-shot': flag },
    check: (_policy, _name, query) => (query.has('stream') ? null : 'The query parameter "stream" is missing.'),
    targets: container(managedLabel),
  },
  {
    method: 'POST',
    path: /^\/containers\/create$/,
    query: { name: /^.{1,255}$/ },
    body: containerBody,
    bodyTargets: createTargets,
    agree: nameProblem,
  },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/kill$`),
    query: { signal: /^SIG(?:INT|KILL)$/ },
    check: (_policy, _name, query) => (query.has('signal') ? null : 'The query parameter "signal" is missing.'),
    targets: container(runLabel),
  },
  {
    method: 'GET',
    path: new RegExp(`^/containers/${id}/archive$`),
    query: { path: /^\/work\/run\/(?!(?:.*\/)?\.{0,2}(?:\/|$)).{1,4000}$/ },
    check: (_policy, _name, query) => (query.has('path') ? null : 'The query parameter "path" is missing.'),
    targets: container(runLabel),
  },
  {
    method: 'PUT',
    path: new RegExp(`^/containers/${id}/archive$`),
    query: { path: /^\/work$/ },
    check: (_policy, _name, query) => (query.has('path') ? null : 'The query parameter "path" is missing.'),
    targets: container(runLabel),
    takesArchive: true,
  },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/attach$`),
    query: { stream: flag, stdout: flag, stderr: flag },
    targets: container(managedLabel),
  },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/rename$`),
    query: { name: new RegExp(`${stoppingName.source}|${runPhaseName.source}`) },
    check: (_policy, _name, query) => (query.has('name') ? null : 'The query parameter "name" is missing.'),
    targets: container(managedLabel),
  },
  { method: 'POST', path: new RegExp(`^/containers/${id}/start$`), targets: container(managedLabel) },
  {
    method: 'POST',
    path: new RegExp(`^/containers/${id}/stop$`),
    query: { t: count },
    targets: container(managedLabel),
  },
  {
    method: 'DELETE',
    path: new RegExp(`^/containers/${id}$`),
    query: { force: flag, v: flag },
    targets: container(managedLabel),
  },
  { method: 'GET', path: new RegExp(`^/images/${imageName}/json$`), check: imageCheck },
  // Without force: the Docker engine keeps an image that a container uses.
  { method: 'DELETE', path: new RegExp(`^/images/${imageName}$`), check: deletedImageCheck },
  {
    method: 'POST',
    path: /^\/images\/create$/,
    query: { fromImage: /^.{1,512}$/, tag: /^.{1,128}$/ },
    check: pullCheck,
    passesRegistryAuth: true,
  },
  { method: 'GET', path: /^\/networks$/, filters: [] },
  { method: 'GET', path: new RegExp(`^/networks/${id}$`), targets: network },
  { method: 'POST', path: /^\/networks\/create$/, body: createdNetwork, agree: networkProblem },
  {
    method: 'POST',
    path: new RegExp(`^/networks/${id}/connect$`),
    targets: network,
    body: connectBody,
    bodyTargets: connectTargets,
  },
  {
    method: 'POST',
    path: new RegExp(`^/networks/${id}/disconnect$`),
    targets: network,
    body: disconnectBody,
    bodyTargets: connectTargets,
  },
  { method: 'DELETE', path: new RegExp(`^/networks/${id}$`), targets: network },
];

function createdNetwork(policy: Policy, body: unknown): z.ZodType {
  const isOverlay = (body as { Driver?: unknown } | null)?.Driver === 'overlay';
  return policy.allowsSwarm && isOverlay ? overlayBody() : networkBody(body);
}

function nameProblem(query: URLSearchParams, body: unknown): string | null {
  const name = query.get('name') ?? '';
  const marks = marksOf(body);
  if (marks !== null) return name === runContainerName(marks) ? null : 'The name does not match the run in the labels.';
  return ownName.test(name) || probeName.test(name) ? null : 'The name must be the name of a replica.';
}

function networkProblem(_query: URLSearchParams, body: unknown): string | null {
  const marks = marksOf(body);
  const { Name: name } = body as { readonly Name: string };
  return marks === null || name === runNetworkName(marks[runLabel])
    ? null
    : 'The name does not match the run in the labels.';
}

function imageCheck({ images, runImages, ...policy }: Policy, name: string): string | null {
  const all = { ...policy, runImages, images: [...images, ...runImages] };
  return isAllowedImage(all, name) ? null : `The image ${name} is not allowed. Add it to ${settingNames.images}.`;
}

/** Images of runs are not deleted: only those of engines. */
function deletedImageCheck(policy: Policy, name: string): string | null {
  return imageCheck({ ...policy, runImages: [] }, name);
}

function pullCheck(policy: Policy, _name: string, query: URLSearchParams): string | null {
  const image = pulledImage(query);
  return image === null
    ? 'The query parameters "fromImage" and "tag" must name exactly one image.'
    : imageCheck(policy, image);
}

/** Decides whether a call is rejected, or passed on in this form if its targets belong to Headgate. */
export function decide(policy: Policy, { method, url, body }: IncomingCall): DockerCall | Refusal {
  const found = findRule(policy, method, url);
  if ('refusal' in found) return found;
  const { rule, prefix, path, name } = found;
  const query = readQuery(found.query, rule);
  if ('refusal' in query) return query;
  const problem = rule.check?.(policy, name, query.params) ?? null;
  if (problem !== null) return { refusal: problem };
  const checked = readBody(policy, rule, body);
  if ('refusal' in checked) return checked;
  const disagreement = rule.agree?.(query.params, checked.value) ?? null;
  if (disagreement !== null) return { refusal: disagreement };
  const search = query.params.size === 0 ? '' : `?${query.params.toString()}`;
  return {
    method,
    path: `${prefix}${path}${search}`,
    body: checked.text,
    targets: [...(rule.targets?.(name, prefix) ?? []), ...(rule.bodyTargets?.(checked.value, prefix, name) ?? [])],
    passesRegistryAuth: rule.passesRegistryAuth === true,
    takesArchive: rule.takesArchive === true,
  };
}

interface FoundRule {
  readonly rule: Rule;
  /** `/v1.41`, or empty. */
  readonly prefix: string;
  readonly path: string;
  readonly name: string;
  readonly query: string;
}

/** API versions from Docker 20.10 on: older versions parse bodies differently. */
const version = /^\/v1\.(?:4[1-9]|[5-9]\d)(?=\/)/;

function findRule({ allowsSwarm }: Policy, method: string, url: string): FoundRule | Refusal {
  const [rawPath = '', query = '', ...more] = url.split('?');
  const prefix = version.exec(rawPath)?.[0] ?? '';
  const path = rawPath.slice(prefix.length);
  // Rejects paths that a later reader could resolve to another path.
  if (more.length > 0 || /%|\/\/|\/\.|\\/.test(path)) return { refusal: 'The URL is malformed.' };
  const isIt = (candidate: Rule): boolean => candidate.method === method && candidate.path.test(path);
  const ofSwarm = swarmRules.find(isIt);
  if (ofSwarm !== undefined && !allowsSwarm)
    return {
      refusal: 'Swarm calls require HEADGATE_DOCKER_SWARM=true of docker-gate (DOCKER_ALLOW_SWARM in compose/.env).',
    };
  const rule = rules.find(isIt) ?? ofSwarm;
  if (rule === undefined) return { refusal: 'This Docker API call is not allowed, because no gateway makes it.' };
  return { rule, prefix, path, query, name: rule.path.exec(path)?.[1] ?? '' };
}

const filtersSchema = z.record(
  z.string(),
  z.union([z.array(z.string()), z.record(z.string(), z.boolean()).transform((values) => Object.keys(values))]),
);

function readQuery(text: string, rule: Rule): { readonly params: URLSearchParams } | Refusal {
  const params = new URLSearchParams(text);
  const names = [...params.keys()];
  if (new Set(names).size !== names.length) return { refusal: 'A query parameter appears twice.' };
  for (const [name, value] of params) {
    if (name === 'filters' && rule.filters !== undefined) continue;
    const known = rule.query !== undefined && Object.hasOwn(rule.query, name) ? rule.query[name] : undefined;
    if (known === undefined) return { refusal: `The query parameter "${name.slice(0, 50)}" is not allowed.` };
    if (!known.test(value)) return { refusal: `The value of the query parameter "${name}" is not allowed.` };
  }
  if (rule.filters === undefined) return { params };
  const filters = readFilters(params.get('filters') ?? '{}', rule.filters);
  if ('refusal' in filters) return filters;
  params.set('filters', filters.text);
  return { params };
}

/** Adds the label to the filters, so that the engine shows only objects of Headgate. */
function readFilters(given: string, allowed: readonly string[]): { readonly text: string } | Refusal {
  const filters = parseJson(filtersSchema, given);
  if (filters === null) return { refusal: 'The query parameter "filters" is malformed.' };
  const unknown = Object.keys(filters).find((name) => name !== 'label' && !allowed.includes(name));
  if (unknown !== undefined) return { refusal: `The filter "${unknown.slice(0, 50)}" is not allowed.` };
  const { label = [], network: networks = [] } = filters;
  if (!networks.every((name) => ownName.test(name)))
    return { refusal: 'The filter "network" must be the name of an engine network.' };
  const own = networks.length > 0 ? gatewayLabel : managedLabel;
  return { text: JSON.stringify({ ...filters, label: [...label, own] }) };
}

function readBody(policy: Policy, rule: Rule, text: string): { text: string | null; value: unknown } | Refusal {
  if (rule.body === undefined) {
    const isEmpty = text === '' || text.trim() === '{}' || text.trim() === 'null';
    return isEmpty ? { text: null, value: null } : { refusal: 'This call must have no body.' };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { refusal: 'The body is not valid JSON.' };
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
