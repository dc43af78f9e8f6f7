import { createHash } from 'node:crypto';
import type { Endpoint } from '#base/endpoint.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { EngineDriver, EngineSpec, ObservedReplica } from './driver.ts';

/**
 * Engines that somebody else runs. They are always there: nothing starts or stops them. Probes and requests find out
 * whether they answer.
 * @param env the gateway's environment, where API keys are looked up
 */
export function createExternalDriver(env: Readonly<Record<string, string | undefined>>): EngineDriver {
  let replicas: readonly ObservedReplica[] = [];
  function setSpecs(specs: readonly EngineSpec[]): void {
    replicas = specs.flatMap((spec) => observe(spec, env));
  }
  return {
    specOf(definition) {
      const spec = { engineId: definition.id, hash: hashOf(definition), definition };
      // What cannot be sent to is refused before anything is changed.
      observe(spec, env);
      return spec;
    },
    open(specs) {
      setSpecs(specs);
      return Promise.resolve();
    },
    setSpecs,
    observe: () => Promise.resolve({ replicas, hosts: [], orphans: [] }),
    start: () => Promise.reject(new Error('An external engine is not ours to start.')),
    stop: () => Promise.resolve(),
    forget: () => Promise.resolve(),
    probeGpus: () => Promise.resolve(null),
    async *logs() {
      // What it writes is with whoever runs it.
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

/** A replica for each address. */
function observe(spec: EngineSpec, env: Readonly<Record<string, string | undefined>>): ObservedReplica[] {
  const { driver, id, kind } = spec.definition;
  if (driver.type !== 'external') throw new Error('The external driver was given another driver’s engine.');
  const headerLines = authorizationLine(driver.apiKeyEnv, env);
  const isOne = driver.urls.length === 1;
  return driver.urls.map((url) => {
    const replica = {
      id: isOne ? `external:${id}` : `external:${id}:${markOf(url)}`,
      engineId: id,
      endpoint: parseEndpoint(url),
      upstreamModel: driver.upstreamModel,
      headerLines,
      forcedUsage: false,
      kind,
    };
    const { host } = new URL(url);
    const placement = { host: isOne ? replica.endpoint.host : host, gpuIds: [] };
    const always = { state: 'running', progress: null, health: 'watched', exit: null } as const;
    return { replica, specHash: spec.hash, placement, epoch: null, ...always };
  });
}

/** Stays an address's own when others come or go; tenants see the ids of replicas, and learn no address by it. */
function markOf(url: string): string {
  return createHash('sha256').update(url).digest('hex').slice(0, 8);
}

function parseEndpoint(address: string): Endpoint {
  const url = new URL(address);
  const tls = url.protocol === 'https:';
  const port = url.port === '' ? (tls ? 443 : 80) : Number(url.port);
  // IPv6 addresses stand in brackets in a URL and without them everywhere else.
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  return { socketPath: null, host, port, tls, basePath: url.pathname.replace(/\/+$/, '') };
}

function authorizationLine(name: string | null, env: Readonly<Record<string, string | undefined>>): string {
  const key = name === null ? '' : (env[name] ?? '').trim();
  if (key === '') return '';
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Error(`The environment variable ${name} holds no usable API key.`);
  return `Authorization: Bearer ${key}\r\n`;
}
