import type { Readable } from 'node:stream';
import {
  type ContainerDetail,
  type ContainerSummary,
  detailSchema,
  imageSchema,
  type DockerInfo,
  infoSchema,
  type NetworkDetail,
  networkSchema,
  networksSchema,
  statsSchema,
  type NetworkSummary,
  summariesSchema,
  versionSchema,
} from './answers.ts';
import { readOnlyFile } from './archive.ts';
import {
  type Call,
  callTimeoutMs,
  changeTimeoutMs,
  createDockerCalls,
  type DockerConnection,
  DockerError,
  type Open,
  orNull,
  read,
  unless,
} from './call.ts';
import type { RegistryLogin } from './registry-logins.ts';
import { type SwarmApi, swarmCalls } from './swarm-api.ts';

export { type DockerConnection, DockerError } from './call.ts';

/** The calls of the Engine API that are used, each bounded in time. All throw a DockerError. */
export interface DockerApi {
  /** Agrees on a version of the API. Call again after the engine was unreachable: it may be another version by then. */
  negotiate(): Promise<string>;
  info(): Promise<DockerInfo>;
  /** Lists containers, running or not, that have all of the labels (`name` or `name=value`). */
  list(labels: readonly string[]): Promise<ContainerSummary[]>;
  /** Returns null if there is no such container. */
  inspect(container: string): Promise<ContainerDetail | null>;
  /** @returns the id */
  create(name: string, body: object): Promise<string>;
  start(container: string): Promise<void>;
  /** Resolves when the container has ended; at once if it does not exist or does not run. */
  stop(container: string, graceMs: number): Promise<void>;
  rename(container: string, name: string): Promise<void>;
  /** Does nothing for a container that does not exist or does not run. */
  kill(container: string, signal: 'SIGINT' | 'SIGKILL'): Promise<void>;
  /** Puts the files of a tar file into a writable folder of a container, running or not. */
  putArchive(container: string, folder: string, archive: Buffer): Promise<void>;
  /** Reads the only file at a path; null if there is none or anything else, `too large` above `bytesMax`. */
  readFile(container: string, path: string, bytesMax: number): Promise<Buffer | 'too large' | null>;
  /** Removes a container with its anonymous volumes; does nothing if the container does not exist. */
  remove(container: string, force: boolean): Promise<void>;
  /** Streams the output in Docker's frames; may be called before the start. */
  attach(container: string, signal: AbortSignal): Promise<Readable>;
  logTail(container: string, lines: number): Promise<Buffer>;
  /** Returns the bytes that a container has received over its networks; null if they are not counted. */
  receivedBytes(container: string): Promise<number | null>;
  /** @param lines number of lines before the end to begin with; null: all lines */
  followLog(container: string, lines: number | null, signal: AbortSignal): Promise<Readable>;
  events(labels: readonly string[], signal: AbortSignal): Promise<Readable>;
  hasImage(reference: string): Promise<boolean>;
  /** Returns the size of an image with all its layers; null if there is no such image. */
  imageBytes(reference: string): Promise<number | null>;
  /** Removes a name of an image, and with its last name the image. Fails with 409 if a container uses the image. */
  removeImage(reference: string): Promise<void>;
  /** @param login of the image's registry */
  pull(reference: string, login: RegistryLogin | null, signal: AbortSignal): Promise<Readable>;
  createNetwork(name: string, labels: Readonly<Record<string, string>>): Promise<void>;
  /** Lists networks that have all of the labels. */
  networks(labels: readonly string[]): Promise<NetworkSummary[]>;
  inspectNetwork(name: string): Promise<NetworkDetail | null>;
  /**
   * Returns the ids of containers in a network, running or not, without tasks of a swarm. A stopped container cannot be
   * started again once its network is removed.
   */
  joinedTo(network: string): Promise<string[]>;
  removeNetwork(name: string): Promise<void>;
  connect(network: string, container: string): Promise<void>;
  disconnect(network: string, container: string): Promise<void>;
  /** Calls that only managers of a swarm answer. */
  readonly swarm: SwarmApi;
}

/** API of Docker 20.10, the oldest version that is known to work, and the newest version that was checked. */
const versionMin = '1.41';
const versionMax = '1.51';

export function createDockerApi(connection: DockerConnection): DockerApi {
  const { call, open, renew } = createDockerCalls(connection);
  return {
    async negotiate() {
      const client = await renew();
      const found = read('version', versionSchema, await call('version', callTimeoutMs, (api, o) => api.version(o)));
      const version = chooseVersion(found.ApiVersion, found.MinAPIVersion ?? versionMin);
      client.modem.version = `v${version}`;
      return version;
    },
    info: async () => read('info', infoSchema, await call('info', callTimeoutMs, (api, o) => api.info(o))),
    ...containerCalls(call),
    ...statsCalls(call),
    ...fileCalls(call),
    ...streamCalls(open),
    ...networkCalls(call),
    swarm: swarmCalls(call, open),
    ...imageCalls(call),
  };
}

function imageCalls(call: Call) {
  const inspect = (reference: string) =>
    orNull(call('inspect image', callTimeoutMs, (api, o) => api.getImage(encodeURI(reference)).inspect(o)));
  return {
    hasImage: async (reference: string) => (await inspect(reference)) !== null,
    async imageBytes(reference: string) {
      const found = await inspect(reference);
      return found === null ? null : read('inspect image', imageSchema, found).Size;
    },
    async removeImage(reference: string) {
      await unless(
        [404],
        call('remove image', changeTimeoutMs, (api, o) => api.getImage(encodeURI(reference)).remove(o)),
      );
    },
  };
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
        call('stop', timeoutMs, (api, o) => api.getContainer(container).stop({ ...inAddress({ t }), ...o })),
      );
    },
    async rename(container: string, name: string) {
      await call('rename', callTimeoutMs, (api, o) =>
        api.getContainer(container).rename({ ...inAddress({ name }), ...o }),
      );
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

/** Readings of running containers. */
function statsCalls(call: Call) {
  return {
    async receivedBytes(container: string) {
      const options = { stream: false as const, 'one-shot': true };
      const found = await call('stats', callTimeoutMs, (api, o) =>
        api.getContainer(container).stats({ ...options, ...o }),
      );
      const { networks } = read('stats', statsSchema, found);
      if (!networks) return null;
      return Object.values(networks).reduce((sum, { rx_bytes: bytes }) => sum + bytes, 0);
    },
  };
}

/** Signals to containers, and their files. */
function fileCalls(call: Call) {
  return {
    async kill(container: string, signal: 'SIGINT' | 'SIGKILL') {
      await unless(
        [404, 409],
        call('kill', callTimeoutMs, (api, o) => api.getContainer(container).kill({ ...inAddress({ signal }), ...o })),
      );
    },
    async putArchive(container: string, path: string, archive: Buffer) {
      await call('put archive', changeTimeoutMs, (api, o) =>
        api.getContainer(container).putArchive(archive, { path, ...o }),
      );
    },
    async readFile(container: string, path: string, bytesMax: number) {
      const found = await orNull(
        call('get archive', changeTimeoutMs, async (api, o) =>
          readOnlyFile(await api.getContainer(container).getArchive({ path, ...o }), bytesMax),
        ),
      );
      return Buffer.isBuffer(found) || found === 'too large' ? found : null;
    },
  };
}

/** Calls that answer for as long as the caller listens; only the signal bounds them. */
function streamCalls(open: Open) {
  return {
    attach: (container: string, abortSignal: AbortSignal) =>
      open('attach', (api) =>
        api.getContainer(container).attach({ ...inAddress({ stream: true, stdout: true, stderr: true }), abortSignal }),
      ),
    followLog: (container: string, lines: number | null, abortSignal: AbortSignal) =>
      open('logs', (api) => {
        const tail = lines === null ? {} : { tail: lines };
        return api
          .getContainer(container)
          .logs({ stdout: true, stderr: true, follow: true as const, ...tail, abortSignal });
      }),
    events: (label: readonly string[], abortSignal: AbortSignal) =>
      open('events', (api) => api.getEvents({ filters: { type: ['container'], label }, abortSignal })),
    pull: (reference: string, login: RegistryLogin | null, abortSignal: AbortSignal) =>
      open('pull', (api) =>
        api.createImage({
          ...inAddress(pullQuery(reference)),
          ...(login !== null && { authconfig: login }),
          abortSignal,
        }),
      ),
  };
}

/** Puts options of a POST into its URL only: dockerode would also send them as a body, which proxies reject. */
function inAddress(query: object): { _query: object; _body: object } {
  return { _query: query, _body: {} };
}

/**
 * Splits a reference into the image's name and its tag or digest; a colon before a slash belongs to a port. The tag
 * defaults to `latest`, because Docker pulls all tags if none is named.
 */
function pullQuery(reference: string): { fromImage: string; tag: string } {
  const at = reference.indexOf('@');
  const colon = reference.lastIndexOf(':');
  const end = at >= 0 ? at : colon > reference.lastIndexOf('/') ? colon : -1;
  if (end < 0) return { fromImage: reference, tag: 'latest' };
  return { fromImage: reference.slice(0, end), tag: reference.slice(end + 1) };
}

function networkCalls(call: Call) {
  return {
    async createNetwork(name: string, labels: Readonly<Record<string, string>>) {
      const body = { Name: name, CheckDuplicate: true, Driver: 'bridge', Attachable: false, Labels: labels };
      await call('create network', changeTimeoutMs, (api, o) => api.createNetwork({ _query: {}, _body: body, ...o }));
    },
    async networks(labels: readonly string[]) {
      const options = { filters: { label: labels } };
      return read(
        'list networks',
        networksSchema,
        await call('list networks', callTimeoutMs, (api, o) => api.listNetworks({ ...options, ...o })),
      );
    },
    async inspectNetwork(name: string) {
      const found = await orNull(call('inspect network', callTimeoutMs, (api, o) => api.getNetwork(name).inspect(o)));
      return found === null ? null : read('inspect network', networkSchema, found);
    },
    async joinedTo(network: string) {
      const options = { all: true, filters: { network: [network] } };
      const found = read(
        'list',
        summariesSchema,
        await call('list', callTimeoutMs, (api, o) => api.listContainers({ ...options, ...o })),
      );
      const isTask = ({ Labels: labels }: ContainerSummary): boolean => labels?.['com.docker.swarm.task'] !== undefined;
      return found.filter((container) => !isTask(container)).map(({ Id: id }) => id);
    },
    async removeNetwork(name: string) {
      await unless(
        [404],
        call('remove network', changeTimeoutMs, (api, o) => api.getNetwork(name).remove(o)),
      );
    },
    async connect(network: string, Container: string) {
      // The lowest priority keeps the published ports on another network: a change of their network cuts every
      // connection. Engines before API 1.48 do not know the field, and choose by the names of networks.
      const EndpointConfig = { GwPriority: -1 };
      await call('connect', changeTimeoutMs, (api, o) =>
        api.getNetwork(network).connect({ Container, EndpointConfig, ...o }),
      );
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

/** Returns the newest version that both sides know. */
function chooseVersion(theirs: string, theirMin: string): string {
  if (isOlder(theirs, versionMin)) {
    throw new DockerError(
      'version',
      null,
      `the engine supports API ${theirs}, but ${versionMin} (Docker 20.10) or newer is required`,
    );
  }
  const newest = isOlder(theirs, versionMax) ? theirs : versionMax;
  // An engine that has dropped all versions known here is tried with its oldest version.
  return isOlder(newest, theirMin) ? theirMin : newest;
}

function isOlder(a: string, b: string): boolean {
  const [aMajor = 0, aMinor = 0] = a.split('.').map(Number);
  const [bMajor = 0, bMinor = 0] = b.split('.').map(Number);
  return aMajor < bMajor || (aMajor === bMajor && aMinor < bMinor);
}
