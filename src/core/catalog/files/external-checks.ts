import type { Deployment } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

type ExternalFile = Extract<EngineFile, { driver: 'external' }>;

/** Fields that list the servers of an external engine; a file has one of them. */
const serverFields = ['url', 'urls', 'deployments'] as const;

/** Returns the servers of an external engine. Addresses have no trailing slashes, as they are compared and used. */
export function deploymentsOf(engine: ExternalFile): Deployment[] {
  const { url, urls = url === undefined ? [] : [url], deployments } = engine;
  const upstreamModel = engine.upstream_model ?? null;
  const apiKeyEnv = engine.api_key_env ?? null;
  if (deployments === undefined) {
    return urls.map((one) => ({ name: null, url: withoutSlash(one), upstreamModel, apiKeyEnv, weight: 1 }));
  }
  return deployments.map((one) => ({
    name: one.name ?? new URL(one.url).host,
    url: withoutSlash(one.url),
    upstreamModel: one.upstream_model ?? upstreamModel,
    apiKeyEnv: one.api_key_env ?? apiKeyEnv,
    weight: one.weight,
  }));
}

const withoutSlash = (address: string): string => address.replace(/\/+$/, '');

/** Checks that one of `url`, `urls` and `deployments` is given, and that no server occurs twice. */
export function externalProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'external') return [];
  const [first, second] = serverFields.filter((field) => engine[field] !== undefined);
  if (first === undefined) {
    return [{ path: ['url'], message: 'this field is missing; for several addresses use urls or deployments' }];
  }
  if (second !== undefined) {
    return [{ path: [second], message: 'use only one of url (one address), urls (several) and deployments' }];
  }
  const servers = deploymentsOf(engine).map((one) => ({ ...one, url: parsedAddress(one.url) }));
  if (first === 'deployments') return deploymentProblems(servers);
  return servers.flatMap(({ url }, index) => {
    if (servers.findIndex((one) => one.url === url) === index) return [];
    return [{ path: ['urls', index], message: 'this address is listed twice' }];
  });
}

function deploymentProblems(servers: readonly Deployment[]): FileProblem[] {
  return servers.flatMap((server, index): FileProblem[] => {
    const others = servers.slice(0, index);
    if (others.some((one) => isSameServer(one, server))) {
      const message = 'this address is listed twice with the same upstream_model and api_key_env';
      return [{ path: ['deployments', index, 'url'], message }];
    }
    if (!others.some(({ name }) => name === server.name)) return [];
    const message = `another deployment is already called ${JSON.stringify(server.name)}; give each its own name`;
    return [{ path: ['deployments', index, 'name'], message }];
  });
}

const isSameServer = (one: Deployment, other: Deployment): boolean =>
  one.url === other.url && one.upstreamModel === other.upstreamModel && one.apiKeyEnv === other.apiKeyEnv;

/** Normalizes an address: lower-case host, no default port, so that all spellings of one server are the same text. */
function parsedAddress(address: string): string {
  const { protocol, username, password, host, pathname, search } = new URL(address);
  return `${protocol}//${username}:${password}@${host.replace(/\.(?=$|:)/, '')}${pathname.replace(/\/+$/, '')}${search}`;
}
