import type Docker from 'dockerode';
import { once } from 'node:events';
import type { Agent } from 'node:http';
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import {
  type ContainerDetail,
  type ContainerSummary,
  detailSchema,
  type DockerInfo,
  infoSchema,
  type NetworkDetail,
  networkSchema,
  summariesSchema,
  versionSchema,
} from './docker-answers.ts';

/** How to reach a Docker engine. */
export interface DockerConnection {
  readonly socketPath?: string;
  readonly host?: string;
  readonly port?: number;
  /** Reads the keys, which may have been renewed since. */
  readonly tls?: () => { readonly ca: Buffer; readonly cert: Buffer; readonly key: Buffer };
  readonly agent?: Agent;
}

/** What went wrong with a call: what the engine answered, or why it could not be asked. */
export class DockerError extends Error {
  readonly call: string;
  /** null: the engine did not answer. */
  readonly status: number | null;
  /** The engine's own words, or the system's. */
  readonly reason: string;

  constructor(call: string, status: number | null, reason: string) {
    super(`Docker: ${call}: ${status === null ? '' : `${status}: `}${reason}`);
    this.name = 'DockerError';
    this.call = call;
    this.status = status;
    this.reason = reason;
  }
}

/** The few calls of the Engine API that are made, each bounded in time. All throw a DockerError. */
export interface DockerApi {
  /** Agrees on a version of the API; to be called again when the engine was away, which may be a new one by then. */
  negotiate(): Promise<string>;
  info(): Promise<DockerInfo>;
  /** Running or not, that bear all of the labels (`name` or `name=value`). */
  list(labels: readonly string[]): Promise<ContainerSummary[]>;
  /** null when there is none. */
  inspect(container: string): Promise<ContainerDetail | null>;
  /** @returns the id */
  create(name: string, body: object): Promise<string>;
  start(container: string): Promise<void>;
  /** Resolves when it has ended; nothing for one that is not there or does not run. */
  stop(container: string, graceMs: number): Promise<void>;
  rename(container: string, name: string): Promise<void>;
  /** With its anonymous volumes; nothing for one that is not there. */
  remove(container: string, force: boolean): Promise<void>;
  /** Output as Docker frames it, from before the start on. */
  attach(container: string, signal: AbortSignal): Promise<Readable>;
  logTail(container: string, lines: number): Promise<Buffer>;
  followLog(container: string, lines: number, signal: AbortSignal): Promise<Readable>;
  events(labels: readonly string[], signal: AbortSignal): Promise<Readable>;
  hasImage(reference: string): Promise<boolean>;
  pull(reference: string, signal: AbortSignal): Promise<Readable>;
  createNetwork(name: string, labels: Readonly<Record<string, string>>): Promise<void>;
  inspectNetwork(name: string): Promise<NetworkDetail | null>;
  removeNetwork(name: string): Promise<void>;
  connect(network: string, container: string): Promise<void>;
  disconnect(network: string, container: string): Promise<void>;
}

/** The API of Docker 20.10, the oldest that is known to work, and the newest whose answers were read. */
const versionMin = '1.41';
const versionMax = '1.51';

const callTimeoutMs = 10_000;
/** A container with GPUs is made ready by hooks, and a full disk is slow. */
const changeTimeoutMs = 120_000;

type Signal = { abortSignal: AbortSignal };
type Call = <T>(name: string, timeoutMs: number, make: (docker: Docker, signal: Signal) => Promise<T>) => Promise<T>;

export function createDockerApi(connection: DockerConnection): DockerApi {
  let loading: Promise<Docker> | null = null;
  const docker = (): Promise<Docker> => (loading ??= loadDocker(connection));
  const call: Call = async (name, timeoutMs, make) => {
    try {
      const abortSignal = AbortSignal.timeout(timeoutMs);
      // Not every call of dockerode minds the signal.
      const late = once(abortSignal, 'abort').then(() =>
        Promise.reject(new DockerError(name, null, 'no answer in time')),
      );
      return await Promise.race([make(await docker(), { abortSignal }), late]);
    } catch (error) {
      throw dockerError(name, error);
    }
  };
  return {
    async negotiate() {
      loading = null;
      const client = await docker().catch((error: unknown) => Promise.reject(dockerError('connect', error)));
      const found = read('version', versionSchema, await call('version', callTimeoutMs, (api, o) => api.version(o)));
      const version = chooseVersion(found.ApiVersion, found.MinAPIVersion ?? versionMin);
      client.modem.version = `v${version}`;
      return version;
    },
    info: async () => read('info', infoSchema, await call('info', callTimeoutMs, (api, o) => api.info(o))),
    ...containerCalls(call),
    ...streamCalls(docker),
    ...networkCalls(call),
    hasImage: async (reference) =>
      (await orNull(
        call('inspect image', callTimeoutMs, (api, o) => api.getImage(encodeURI(reference)).inspect(o)),
      )) !== null,
  };
}

async function loadDocker({ socketPath, host, port, tls: readKeys, agent }: DockerConnection): Promise<Docker> {
  const tls = readKeys?.();
  // Loaded when it is needed: it costs 120 ms and 30 MB.
  const { default: Client } = await import('dockerode');
  const { Agent: HttpAgent } = await import('node:http');
  const { Agent: HttpsAgent } = await import('node:https');
  // Everything is named, or dockerode would take it from the environment. No connection is kept: after a restart of
  // the engine it would be a dead one, and a change must not be sent twice.
  const ownAgent = agent ?? (tls === undefined ? new HttpAgent({ keepAlive: false }) : new HttpsAgent(tls));
  return new Client({
    socketPath,
    host,
    port,
    protocol: tls === undefined ? 'http' : 'https',
    pathPrefix: '/',
    ca: tls?.ca,
    cert: tls?.cert,
    key: tls?.key,
    agent: ownAgent,
    timeout: undefined,
  });
}

function containerCalls(call: Call) {
  return {
    async list(labels: readonly string[]) {
      const options = { all: true, filters: { label: labels } };
      return read(
        'list',
        summariesSchema,
        await call('list', callTimeoutMs, (api, o) => api.listContainers({ ...options, ...o })),
      );
    },
    async inspect(container: string) {
      const found = await orNull(call('inspect', callTimeoutMs, (api, o) => api.getContainer(container).inspect(o)));
      return found === null ? null : read('inspect', detailSchema, found);
    },
    async create(name: string, body: object) {
      const options = { _query: { name }, _body: body };
      return (await call('create', changeTimeoutMs, (api, o) => api.createContainer({ ...options, ...o }))).id;
    },
    async start(container: string) {
      await unless(
        [304],
        call('start', changeTimeoutMs, (api, o) => api.getContainer(container).start(o)),
      );
    },
    async stop(container: string, graceMs: number) {
      const t = Math.ceil(graceMs / 1000);
      const timeoutMs = t * 1000 + changeTimeoutMs;
      await unless(
        [304, 404],
        call('stop', timeoutMs, (api, o) => api.getContainer(container).stop({ t, ...o })),
      );
    },
    async rename(container: string, name: string) {
      await call('rename', callTimeoutMs, (api, o) => api.getContainer(container).rename({ name, ...o }));
    },
    async remove(container: string, force: boolean) {
      const options = { v: true, force };
      await unless(
        [404],
        call('remove', changeTimeoutMs, (api, o) => api.getContainer(container).remove({ ...options, ...o })),
      );
    },
    async logTail(container: string, tail: number) {
      const options = { stdout: true, stderr: true, follow: false as const, tail };
      const found = await call('logs', callTimeoutMs, (api, o) =>
        api.getContainer(container).logs({ ...options, ...o }),
      );
      return Buffer.isBuffer(found) ? found : Buffer.alloc(0);
    },
  };
}

/** Calls that answer for as long as somebody listens; bounded by the signal alone. */
function streamCalls(docker: () => Promise<Docker>) {
  const open = async (name: string, make: (api: Docker) => Promise<Readable>): Promise<Readable> => {
    try {
      return await make(await docker());
    } catch (error) {
      throw dockerError(name, error);
    }
  };
  return {
    attach: (container: string, abortSignal: AbortSignal) =>
      open('attach', (api) =>
        api.getContainer(container).attach({ stream: true, stdout: true, stderr: true, abortSignal }),
      ),
    followLog: (container: string, tail: number, abortSignal: AbortSignal) =>
      open('logs', (api) =>
        api.getContainer(container).logs({ stdout: true, stderr: true, follow: true as const, tail, abortSignal }),
      ),
    events: (label: readonly string[], abortSignal: AbortSignal) =>
      open('events', (api) => api.getEvents({ filters: { type: ['container'], label }, abortSignal })),
    pull: (reference: string, abortSignal: AbortSignal) => open('pull', (api) => api.pull(reference, { abortSignal })),
  };
}

function networkCalls(call: Call) {
  return {
    async createNetwork(name: string, labels: Readonly<Record<string, string>>) {
      const body = { Name: name, CheckDuplicate: true, Driver: 'bridge', Attachable: false, Labels: labels };
      await call('create network', changeTimeoutMs, (api, o) => api.createNetwork({ _query: {}, _body: body, ...o }));
    },
    async inspectNetwork(name: string) {
      const found = await orNull(call('inspect network', callTimeoutMs, (api, o) => api.getNetwork(name).inspect(o)));
      return found === null ? null : read('inspect network', networkSchema, found);
    },
    async removeNetwork(name: string) {
      await unless(
        [404],
        call('remove network', changeTimeoutMs, (api, o) => api.getNetwork(name).remove(o)),
      );
    },
    async connect(network: string, Container: string) {
      await call('connect', changeTimeoutMs, (api, o) => api.getNetwork(network).connect({ Container, ...o }));
    },
    async disconnect(network: string, Container: string) {
      const options = { Container, Force: true };
      await unless(
        [404],
        call('disconnect', changeTimeoutMs, (api, o) => api.getNetwork(network).disconnect({ ...options, ...o })),
      );
    },
  };
}

/** The newest version that both know. */
function chooseVersion(theirs: string, theirMin: string): string {
  if (isOlder(theirs, versionMin)) {
    throw new DockerError('version', null, `the engine speaks API ${theirs}; ${versionMin} (Docker 20.10) is needed`);
  }
  const newest = isOlder(theirs, versionMax) ? theirs : versionMax;
  // An engine that has dropped all that is known here is tried with the oldest it has.
  return isOlder(newest, theirMin) ? theirMin : newest;
}

function isOlder(a: string, b: string): boolean {
  const [aMajor = 0, aMinor = 0] = a.split('.').map(Number);
  const [bMajor = 0, bMinor = 0] = b.split('.').map(Number);
  return aMajor < bMajor || (aMajor === bMajor && aMinor < bMinor);
}

function read<T>(name: string, schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new DockerError(name, null, `an answer that was not understood (${issue?.path.join('.')}: ${issue?.message})`);
}

async function orNull(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof DockerError && error.status === 404) return null;
    throw error;
  }
}

async function unless(statuses: readonly number[], call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof DockerError) || error.status === null || !statuses.includes(error.status)) throw error;
  }
}

function dockerError(name: string, error: unknown): DockerError {
  if (error instanceof DockerError) return error;
  if (!(error instanceof Error)) return new DockerError(name, null, String(error));
  const { statusCode, json, code } = error as Error & { statusCode?: unknown; json?: unknown; code?: unknown };
  if (typeof statusCode !== 'number') {
    const text = error.name === 'AbortError' || error.name === 'TimeoutError' ? 'no answer in time' : error.message;
    return new DockerError(name, null, typeof code === 'string' && !text.includes(code) ? `${code}: ${text}` : text);
  }
  const said = typeof json === 'object' && json !== null && 'message' in json ? String(json.message) : error.message;
  return new DockerError(name, statusCode, said);
}
