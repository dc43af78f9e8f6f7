import { createHash } from 'node:crypto';
import type { Endpoint } from '#base/net/net.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { EngineDriver, EngineSpec, ObservedReplica } from './driver.ts';

/**
 * Creates the driver for external engines. Their replicas always exist: nothing starts or stops them. Probes and
 * requests find out whether they answer.
 * @param env the gateway's environment, in which API keys are looked up
 */
export function createExternalDriver(env: Readonly<Record<string, string | undefined>>): EngineDriver {
  let replicas: readonly ObservedReplica[] = [];
  function setSpecs(specs: readonly EngineSpec[]): void {
    replicas = specs.flatMap((spec) => observe(spec, env));
  }
  return {
    specOf(definition) {
      const spec = { engineId: definition.id, hash: hashOf(definition), definition };
      // Rejects an unusable address or key before anything changes.
      observe(spec, env);
      return spec;
    },
    open(specs) {
      setSpecs(specs);
      return Promise.resolve();
    },
    setSpecs,
    observe: () => Promise.resolve({ replicas, hosts: [], orphans: [] }),
    start: () => Promise.reject(new Error('Headgate does not start external engines.')),
    stop: () => Promise.resolve(),
    forget: () => Promise.resolve(),
    activity: () => Promise.resolve(null),
    probeGpus: () => Promise.resolve(null),
    readGpus: () => Promise.resolve(null),
    async *logs() {
      // External engines keep their own logs.
    },
    onChange: () => undefined,
    close() {
      replicas = [];
      return Promise.resolve();
    },
  };
}

function hashOf(definition: EngineDefinition): string {
  return createHash('sha256').update(JSON.stringify(definition.driver)).digest('hex');
}

/** Returns one replica per deployment. */
function observe(spec: EngineSpec, env: Readonly<Record<string, string | undefined>>): ObservedReplica[] {
  const { driver, id, kind } = spec.definition;
  if (driver.type !== 'external') throw new Error('The external driver was given another driver’s engine.');
  const isOne = driver.deployments.length === 1;
  return driver.deployments.map((deployment) => {
    const { name, url, upstreamModel, weight } = deployment;
    const replica = {
      id: isOne ? `external:${id}` : `external:${id}:${markOf(name ?? url)}`,
      engineId: id,
      endpoint: parseEndpoint(url),
      upstreamModel,
      headerLines: authorizationLine(deployment.apiKeyEnv, env),
      forcedUsage: false,
      kind,
      ...(name !== null && { deployment: { name, weight } }),
    };
    const { host } = new URL(url);
    const placement = { host: isOne ? replica.endpoint.host : host, gpuIds: [] };
    const always = { state: 'running', progress: null, health: 'watched', exit: null } as const;
    const { findsKind } = driver;
    return { replica, specHash: spec.hash, placement, epoch: null, findsKind, ...always };
  });
}

/**
 * Identifies a deployment by its name, and others by their address, also when others come or go. A hash, because
 * tenants see replica ids and must learn neither.
 */
function markOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

function parseEndpoint(address: string): Endpoint {
  const url = new URL(address);
  const tls = url.protocol === 'https:';
  const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port);
  // IPv6 addresses have brackets only in URLs.
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  return { socketPath: null, host, port, tls, basePath: url.pathname.replace(/\/+$/, '') };
}

function authorizationLine(name: string | null, env: Readonly<Record<string, string | undefined>>): string {
  const key = name === null ? '' : (env[name] ?? '').trim();
  if (key === '') return '';
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new Error(`The environment variable ${name} does not contain a valid API key.`);
  return `Authorization: Bearer ${key}\r\n`;
}
