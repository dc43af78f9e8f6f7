import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll } from 'vitest';
import { createRegistryLogins } from '#base/docker/registry-logins.ts';
import type { Endpoint } from '#base/net/endpoint.ts';
import { createLog } from '#base/log.ts';
import type { ContainerDriverSettings, DockerHostSettings, EngineDefinition } from '#core/catalog/catalog.ts';
import { createDockerDriver, type DockerDriverOptions } from '#core/fleet/drivers/docker/docker.ts';
import type { EngineDriver, Observation, ObservedReplica, StartRequest } from '#core/fleet/drivers/driver.ts';
import type { Fence } from '#core/fleet/drivers/fence.ts';
import type { Replica } from '#core/fleet/drivers/replica.ts';
import type { TestDocker } from '#test/docker.ts';
import { labelFilter, removeLabelled, useDocker } from '#test/shared-docker.ts';

/** Far beyond what anything takes, so that a busy machine fails nothing. */
const waitMs = 180_000;

export const image = 'headgate-test/vllm-standin:v0.32.0';

export function containerEngine(
  driver: Partial<ContainerDriverSettings> = {},
  over: Partial<EngineDefinition> = {},
): EngineDefinition {
  return {
    file: 'engines/chat.yaml',
    id: 'chat',
    name: 'Chat',
    aliases: [],
    listsAliases: false,
    huggingFaceId: 'acme/chat',
    taskType: 'chat',
    contextLength: 1024,
    enabled: true,
    ownedBy: 'acme',
    pricing: null,
    flexPricing: null,
    fallbacks: [],
    concurrencyMax: null,
    requestChanges: { defaults: {}, overrides: {} },
    queuedRequestsMax: null,
    queuedTokensMax: null,
    wedgedMs: 60_000,
    stalledMs: 600_000,
    kind: 'vllm',
    allow: [],
    unservedTools: 'reject',
    mediaDomains: [],
    nMax: null,
    mediaMax: 32,
    structuredOutputs: { choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 },
    shareCache: false,
    hardwareProfile: null,
    organizationId: null,
    lora: [],
    lorasMax: null,
    loraRankMax: null,
    driver: {
      type: 'docker',
      image,
      args: ['acme/chat', '--max-model-len', '1024'],
      entrypoint: null,
      env: {},
      gpus: null,
      shmBytes: null,
      memoryBytesMax: null,
      ulimits: {},
      cpuset: {},
      volumes: [],
      port: 8000,
      hosts: [],
      placement: 'pack',
      constraints: [],
      idleMs: 600_000,
      startTimeoutMs: 60_000,
      drainMs: 1000,
      upMinMs: 0,
      replicas: { min: 0, max: 2 },
      schedule: [],
      pinned: false,
      sleepLevel: 0,
      canaries: [],
      ...driver,
    },
    ...over,
  };
}

/** An engine that is a script of Node's instead: it ends as the test sets. */
export function scriptEngine(script: string, driver: Partial<ContainerDriverSettings> = {}): EngineDefinition {
  return containerEngine({ entrypoint: ['/usr/bin/node', '--eval'], args: [script], ...driver }, { kind: 'openai' });
}

export function localHost(docker: TestDocker, over: Partial<DockerHostSettings> = {}): DockerHostSettings {
  return {
    name: 'local',
    docker: { type: 'unix', socketPath: docker.socketPath },
    address: null,
    pools: ['lab'],
    gpus: [],
    gpuAccess: 'environment',
    probeImage: null,
    ...over,
  };
}

export interface TestDriver {
  readonly driver: EngineDriver;
  readonly fleetId: string;
  /** Asks for a new replica of an engine. */
  start(definition: EngineDefinition, over?: Partial<Omit<StartRequest, 'spec'>>): Promise<string>;
  /** Observes until what is looked for is there. */
  until<T>(read: (observation: Observation) => T | null | undefined | false): Promise<T>;
  /** Until a replica is in a state. */
  untilIs(replicaId: string, state: ObservedReplica['state']): Promise<ObservedReplica>;
  /** Until a replica answers /health with 200. */
  untilReady(replicaId: string): Promise<Replica>;
  stop(replicaId: string, graceMs?: number): Promise<void>;
}

export const holding: Fence = { epoch: 1n, holds: () => Promise.resolve(true) };

/** A driver of an installation of its own, open. */
export async function openDriver(
  hosts: readonly DockerHostSettings[],
  engines: readonly EngineDefinition[],
  over: Partial<DockerDriverOptions> = {},
): Promise<TestDriver> {
  const fleetId = over.fleetId ?? newId();
  const log = createLog('silent');
  const logins = createRegistryLogins({ folder: null, log });
  const options = { hosts, fleetId, fleetSecret: 'a secret of the fleet', env: {}, logins, log };
  const driver = createDockerDriver({ ...options, selfContainer: null, ...over });
  await driver.open(engines.map((engine) => driver.specOf(engine)));
  const until: TestDriver['until'] = async (read) => {
    const deadline = Date.now() + waitMs;
    for (;;) {
      const observation = await driver.observe();
      const found = read(observation);
      if (found !== null && found !== undefined && found !== false) return found;
      if (Date.now() > deadline) throw new Error(`It did not come to that: ${describe(observation)}`);
      await pause(30);
    }
  };
  const untilIs: TestDriver['untilIs'] = (id, state) =>
    until((observation) => {
      const found = observation.replicas.find(({ replica }) => replica.id === id);
      // It will not come back.
      if (found?.state === 'exited' && state !== 'exited') throw new Error(`It has ended: ${describe(observation)}`);
      return found?.state === state && found;
    });
  return {
    driver,
    fleetId,
    until,
    untilIs,
    async start(definition, over = {}) {
      const replicaId = over.replicaId ?? newId();
      const placement = { host: hosts[0]?.name ?? '', gpuIds: [] };
      await driver.start({ replicaId, spec: driver.specOf(definition), placement, fence: holding, ...over });
      return replicaId;
    },
    async untilReady(id) {
      const { replica } = await untilIs(id, 'running');
      const deadline = Date.now() + waitMs;
      while ((await statusOf(replica, '/health')) !== 200) {
        if (Date.now() > deadline) throw new Error('It does not become ready.');
        await pause(20);
      }
      return replica;
    },
    stop: (id, graceMs = 10_000) => driver.stop(id, { fence: holding, graceMs }),
  };
}

export function newId(): string {
  return randomBytes(8).toString('hex');
}

function describe({ replicas, hosts }: Observation): string {
  return JSON.stringify({ hosts, replicas }, (key, value) =>
    typeof value === 'bigint' ? String(value) : key === 'headerLines' ? '' : value,
  );
}

/** 0 when it does not answer. */
export async function statusOf(replica: Replica, path: string, keyed = true): Promise<number> {
  return (await ask(replica.endpoint, path, keyed ? replica.headerLines : '').catch(() => ({ status: 0 }))).status;
}

export function ask(
  { socketPath, host, port }: Endpoint,
  path: string,
  headerLines = '',
): Promise<{ status: number; text: string }> {
  const where = socketPath === null ? { host, port } : { socketPath };
  const [, authorization] = /^Authorization: (.*)\r\n$/.exec(headerLines) ?? [];
  const headers = authorization === undefined ? {} : { authorization };
  return new Promise((resolve, reject) => {
    const sent = request({ ...where, path, headers, agent: false, timeout: 2000 }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => (text += chunk));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      answer.on('error', reject);
    });
    sent.on('timeout', () => sent.destroy(new Error('timeout')));
    sent.on('error', reject);
    sent.end();
  });
}

export async function collect(lines: AsyncIterable<string>): Promise<string[]> {
  const all: string[] = [];
  for await (const line of lines) all.push(line);
  return all;
}

interface Found {
  readonly Id: string;
  readonly State: string;
  readonly Labels: Record<string, string>;
  readonly Names: string[];
}

/** The Docker engine of a file's tests, with the image in it. */
export interface Lab {
  docker(): TestDocker;
  /** A driver on that engine, closed at the end. */
  open(
    hosts?: readonly DockerHostSettings[],
    engines?: readonly EngineDefinition[],
    over?: Partial<DockerDriverOptions>,
  ): Promise<TestDriver>;
  containersOf(fleetId: string): Promise<Found[]>;
  networksOf(fleetId: string): Promise<{ Name: string }[]>;
}

/** @param options of a Docker engine of the file's own, which it may kill; null shares one with the other files */
export function createLab(options: (() => readonly string[]) | null = null): Lab {
  const docker = useDocker(options);
  const opened: TestDriver[] = [];
  const listed = async (path: string, fleetId: string): Promise<unknown> => {
    return docker().call('GET', `${path}filters=${labelFilter('headgate.fleet', fleetId)}`);
  };
  afterAll(async () => {
    await Promise.all(opened.map(({ driver }) => driver.close()));
    if (options !== null) return;
    for (const id of new Set(opened.map(({ fleetId }) => fleetId)))
      await removeLabelled(docker(), 'headgate.fleet', id);
  });
  return {
    docker,
    async open(hosts = [localHost(docker())], engines = [containerEngine()], over = {}) {
      const driver = await openDriver(hosts, engines, over);
      opened.push(driver);
      return driver;
    },
    containersOf: async (fleetId) => (await listed('/containers/json?all=1&', fleetId)) as Found[],
    networksOf: async (fleetId) => (await listed('/networks?', fleetId)) as { Name: string }[],
  };
}
