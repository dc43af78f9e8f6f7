import type { DockerHostSettings, GpuAccess } from '#core/catalog/catalog.ts';
import {
  containerArguments,
  containerEnvironment,
  containerForcesUsage,
  containerSettings,
  containerShmBytes,
} from '#core/fleet/drivers/container-command.ts';
import type { StartRequest } from '#core/fleet/drivers/driver.ts';
import { apiKeyOf, containerName, labelsOf, networkName } from './labels.ts';

/** A container as the Engine API is asked to make it. */
export interface ContainerPlan {
  readonly name: string;
  readonly network: string;
  /** Holds secrets: not for logs. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface PlanOptions {
  readonly request: StartRequest;
  readonly host: DockerHostSettings;
  readonly gpuAccess: GpuAccess;
  readonly fleetId: string;
  readonly fleetSecret: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** So that logs fill no disk. */
export const containerLog = { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } };
/** Of Docker's default set; what is left lets root read caches that belong to other users. */
export const droppedCapabilities = [
  'AUDIT_WRITE',
  'MKNOD',
  'NET_BIND_SERVICE',
  'NET_RAW',
  'SETFCAP',
  'SETPCAP',
  'SYS_CHROOT',
];
/** The container of a start request, or the variable of the engine's file that refers to something that is not set. */
export function planContainer(
  options: PlanOptions,
): { ok: true; plan: ContainerPlan } | { ok: false; missing: string } {
  const { request, host, gpuAccess, fleetId, fleetSecret, env } = options;
  const { replicaId, spec, placement, fence } = request;
  const { definition, engineId } = spec;
  const settings = containerSettings(definition);
  const isPrivate = host.address === null;
  const environment = containerEnvironment({
    definition,
    env,
    apiKey: apiKeyOf(fleetSecret, replicaId),
    isPrivate,
  });
  if (!environment.ok) return environment;
  const network = networkName(fleetId, engineId);
  const gpu = gpuSettings(gpuAccess, placement.gpuIds);
  const body = {
    Image: settings.image,
    Cmd: containerArguments(definition),
    ...(settings.entrypoint === null ? {} : { Entrypoint: settings.entrypoint }),
    Env: Object.entries({ ...environment.env, ...gpu.env }).map(([name, value]) => `${name}=${value}`),
    Labels: labelsOf(fleetId, {
      replicaId,
      engineId,
      specHash: spec.hash,
      epoch: fence.epoch,
      gpuIds: placement.gpuIds,
      kind: definition.kind,
      port: settings.port,
      forcedUsage: containerForcesUsage(definition),
    }),
    ExposedPorts: { [`${settings.port}/tcp`]: {} },
    StopSignal: 'SIGTERM',
    // The fleet asks for its health itself.
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      NetworkMode: network,
      RestartPolicy: { Name: 'no' },
      Init: true,
      IpcMode: 'private',
      SecurityOpt: ['no-new-privileges'],
      CapDrop: droppedCapabilities,
      LogConfig: containerLog,
      Mounts: mountsOf(settings.volumes),
      ...shmOf(containerShmBytes(definition)),
      ...memoryOf(settings.memoryBytesMax),
      ...publishedOf(host.address, settings.port),
      ...gpu.hostConfig,
    },
  };
  return { ok: true, plan: { name: containerName(fleetId, engineId, replicaId), network, body } };
}

/** A folder that is not there is an error: Docker would make an empty one where a model was expected. */
export function mountsOf(volumes: readonly { source: string; target: string; readOnly: boolean }[]): object[] {
  return volumes.map(({ source, target, readOnly }) => ({
    Type: source.startsWith('/') ? 'bind' : 'volume',
    Source: source,
    Target: target,
    ReadOnly: readOnly,
  }));
}

function shmOf(bytes: number | null): object {
  return bytes === null ? {} : { ShmSize: bytes };
}

/** Without swap: an engine that swaps is worse than one that ends. */
function memoryOf(bytes: number | null): object {
  return bytes === null ? {} : { Memory: bytes, MemorySwap: bytes };
}

function publishedOf(address: string | null, port: number): object {
  if (address === null) return {};
  return { PortBindings: { [`${port}/tcp`]: [{ HostIp: address, HostPort: '' }] } };
}

interface GpuSettings {
  readonly env: Readonly<Record<string, string>>;
  readonly hostConfig: object;
}

/**
 * How a container gets devices. One without any has a variable that says so: images of vLLM ask for all of them, and
 * get them where nvidia's runtime is the default.
 * @param gpuIds `all` as the only one gives every device
 */
export function gpuSettings(access: GpuAccess, gpuIds: readonly string[]): GpuSettings {
  if (gpuIds.length === 0) return { env: { NVIDIA_VISIBLE_DEVICES: 'void' }, hostConfig: {} };
  if (access === 'environment') return { env: { NVIDIA_VISIBLE_DEVICES: gpuIds.join(',') }, hostConfig: {} };
  if (access === 'cdi') {
    const devices = gpuIds.map((id) => (id.includes('=') ? id : `nvidia.com/gpu=${id}`));
    return { env: {}, hostConfig: { DeviceRequests: [{ Driver: 'cdi', DeviceIDs: devices }] } };
  }
  const which = gpuIds[0] === 'all' ? { Count: -1 } : { DeviceIDs: gpuIds };
  return { env: {}, hostConfig: { DeviceRequests: [{ Driver: 'nvidia', ...which, Capabilities: [['gpu']] }] } };
}
