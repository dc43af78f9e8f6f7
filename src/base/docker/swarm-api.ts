import type { Readable } from 'node:stream';
import { type Call, callTimeoutMs, changeTimeoutMs, DockerError, type Open, orNull, read, unless } from './call.ts';
import type { RegistryLogin } from './registry-logins.ts';
import {
  imageSchema,
  type SwarmNode,
  nodesSchema,
  type SwarmSecret,
  secretsSchema,
  type SwarmService,
  servicesSchema,
  type SwarmTask,
  tasksSchema,
} from './swarm-answers.ts';

type Labels = Readonly<Record<string, string>>;

/** The calls that managers of a swarm answer. All throw a DockerError. */
export interface SwarmApi {
  /** Lists services that have all of the labels (`name` or `name=value`). */
  listServices(labels: readonly string[]): Promise<SwarmService[]>;
  /** Lists tasks of services that have all of the labels, past tasks included. */
  listTasks(labels: readonly string[]): Promise<SwarmTask[]>;
  listNodes(): Promise<SwarmNode[]>;
  listSecrets(labels: readonly string[]): Promise<SwarmSecret[]>;
  /**
   * Creates a service; does nothing if its name is taken.
   * @param body must contain no secret, because all managers show it
   * @param login login of the image's registry; managers keep it for the nodes and never show it
   */
  createService(body: object, login: RegistryLogin | null): Promise<void>;
  /** Changes the number of a service's tasks. @throws with status 400 or 409 if the service was changed meanwhile */
  scaleService(service: SwarmService, replicas: number): Promise<void>;
  /** Removes a service; does nothing if it does not exist. */
  removeService(id: string): Promise<void>;
  /** @returns the id of the new secret, or of the existing secret of this name */
  createSecret(name: string, value: string, labels: Labels): Promise<string>;
  removeSecret(id: string): Promise<void>;
  /** Creates an overlay network that containers outside of services may join. */
  createOverlay(name: string, labels: Labels): Promise<void>;
  /** Returns null if this engine does not have the image. */
  imageEntrypoint(reference: string): Promise<readonly string[] | null>;
  serviceLogTail(id: string, lines: number): Promise<Buffer>;
  followServiceLog(id: string, lines: number, signal: AbortSignal): Promise<Readable>;
}

export function swarmCalls(call: Call, open: Open): SwarmApi {
  return { ...listCalls(call), ...serviceCalls(call), ...secretCalls(call), ...logCalls(call, open) };
}

function listCalls(call: Call) {
  return {
    async listServices(label: readonly string[]) {
      const options = { filters: { label } };
      const found = await call('list services', callTimeoutMs, (api, o) => api.listServices({ ...options, ...o }));
      return read('list services', servicesSchema, found);
    },
    async listTasks(label: readonly string[]) {
      const options = { filters: { label } };
      const found = await call('list tasks', callTimeoutMs, (api, o) => api.listTasks({ ...options, ...o }));
      return read('list tasks', tasksSchema, found);
    },
    async listNodes() {
      return read('list nodes', nodesSchema, await call('list nodes', callTimeoutMs, (api, o) => api.listNodes(o)));
    },
    async listSecrets(label: readonly string[]) {
      return findSecrets(call, { label });
    },
  };
}

async function findSecrets(call: Call, filters: object): Promise<SwarmSecret[]> {
  const found = await call('list secrets', callTimeoutMs, (api, o) => api.listSecrets({ filters, ...o }));
  return read('list secrets', secretsSchema, found);
}

function serviceCalls(call: Call) {
  return {
    async createService(body: object, login: RegistryLogin | null) {
      const options = { _query: {}, _body: body };
      await unless(
        [409],
        call('create service', changeTimeoutMs, (api, o) =>
          api.createService(login ?? undefined, { ...options, ...o }),
        ),
      );
    },
    async scaleService({ ID: id, Version: { Index: version }, Spec: spec }: SwarmService, replicas: number) {
      const body = { ...spec, Mode: { Replicated: { Replicas: replicas } } };
      const options = { _query: { version }, _body: body };
      // Without a login in the call, managers keep their login.
      await call('scale service', changeTimeoutMs, (api, o) =>
        api.getService(id).update(undefined, { ...options, ...o }),
      );
    },
    async removeService(id: string) {
      await unless(
        [404],
        call('remove service', changeTimeoutMs, (api, o) => api.getService(id).remove(o)),
      );
    },
    async createOverlay(name: string, labels: Labels) {
      const body = { Name: name, CheckDuplicate: true, Driver: 'overlay', Attachable: true, Labels: labels };
      await call('create network', changeTimeoutMs, (api, o) => api.createNetwork({ _query: {}, _body: body, ...o }));
    },
    async imageEntrypoint(reference: string) {
      const found = await orNull(
        call('inspect image', callTimeoutMs, (api, o) => api.getImage(encodeURI(reference)).inspect(o)),
      );
      return found === null ? null : (read('inspect image', imageSchema, found).Config?.Entrypoint ?? []);
    },
  };
}

function secretCalls(call: Call) {
  return {
    async createSecret(name: string, value: string, labels: Labels) {
      const body = { Name: name, Labels: labels, Data: Buffer.from(value).toString('base64') };
      const options = { _query: {}, _body: body };
      try {
        return (await call('create secret', changeTimeoutMs, (api, o) => api.createSecret({ ...options, ...o }))).id;
      } catch (error) {
        if (!(error instanceof DockerError) || error.status !== 409) throw error;
        const found = await findSecrets(call, { name: [name] });
        const same = found.find(({ Spec: { Name: other } }) => other === name);
        if (same === undefined) throw error;
        return same.ID;
      }
    },
    async removeSecret(id: string) {
      await unless(
        [404],
        call('remove secret', changeTimeoutMs, (api, o) => api.getSecret(id).remove(o)),
      );
    },
  };
}

function logCalls(call: Call, open: Open) {
  const streams = { stdout: true, stderr: true };
  return {
    async serviceLogTail(id: string, tail: number) {
      const options = { ...streams, follow: false as const, tail };
      const found = await call('logs', callTimeoutMs, (api, o) => api.getService(id).logs({ ...options, ...o }));
      return Buffer.isBuffer(found) ? found : Buffer.alloc(0);
    },
    followServiceLog: (id: string, tail: number, abortSignal: AbortSignal) =>
      open('logs', (api) => api.getService(id).logs({ ...streams, follow: true as const, tail, abortSignal })),
  };
}
