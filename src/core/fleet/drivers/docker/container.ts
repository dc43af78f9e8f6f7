import type { ContainerDriverSettings, DockerHostSettings, GpuAccess } from '#core/catalog/catalog.ts';
import {
  containerArguments,
  containerEnvironment,
  containerForcesUsage,
  containerSettings,
  containerShmBytes,
} from '#core/fleet/drivers/container-command.ts';
import type { StartRequest } from '#core/fleet/drivers/driver.ts';
import { apiKeyOf, containerName, labelsOf, networkName } from './labels.ts';

/** A container as requested from the Engine API. */
export interface ContainerPlan {
  readonly name: string;
  readonly network: string;
  /** Contains secrets: never log. */
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

/** Bounds logs, so that they do not fill the disk. */
export const containerLog = { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } };
/** Capabilities dropped from Docker's default set; the others let root read caches that belong to other users. */
export const droppedCapabilities = [
  'AUDIT_WRITE',
  'MKNOD',
  'NET_BIND_SERVICE',
  'NET_RAW',
  'SETFCAP',
  'SETPCAP',
  'SYS_CHROOT',
];
/** Returns the container for a start request, or the variable of the engine's file that refers to an unset one. */
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
    // The fleet runs its own health checks.
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
      ...ulimitsOf(settings.ulimits),
      ...cpusetOf(settings.cpuset),
      ...publishedOf(host.address, settings.port),
      ...gpu.hostConfig,
    },
  };
  return { ok: true, plan: { name: containerName(fleetId, engineId, replicaId), network, body } };
}

/** A missing folder is an error: with binds, Docker would create an empty one where a model is expected. */
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

/** Disables swap: an engine that swaps is worse than one that ends. */
function memoryOf(bytes: number | null): object {
  return bytes === null ? {} : { Memory: bytes, MemorySwap: bytes };
}

/** Returns nothing without limits: the Docker engine's own apply. */
export function ulimitsOf(ulimits: Readonly<Record<string, number | undefined>>): object {
  const given = Object.entries(ulimits).filter(([, limit]) => limit !== undefined);
  return given.length === 0 ? {} : { Ulimits: given.map(([Name, limit]) => ({ Name, Soft: limit, Hard: limit })) };
}

function cpusetOf({ cpus, mems }: ContainerDriverSettings['cpuset']): object {
  return { ...(cpus !== undefined && { CpusetCpus: cpus }), ...(mems !== undefined && { CpusetMems: mems }) };
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
 * Returns the settings that give a container its devices. A container without devices of nvidia's runtime needs
 * NVIDIA_VISIBLE_DEVICES=void: vLLM images request all GPUs, and get them where nvidia's runtime is the default.
 * @param gpuIds `all` as the only one gives every device
 */
export function gpuSettings(access: GpuAccess, gpuIds: readonly string[]): GpuSettings {
  if (gpuIds.length === 0) return { env: { NVIDIA_VISIBLE_DEVICES: 'void' }, hostConfig: {} };
  if (access === 'environment') return { env: { NVIDIA_VISIBLE_DEVICES: gpuIds.join(',') }, hostConfig: {} };
  if (access === 'rocm') {
    const paths = ['/dev/kfd', ...gpuIds.map((id) => `/dev/dri/${id}`)];
    return { env: { NVIDIA_VISIBLE_DEVICES: 'void' }, hostConfig: { Devices: paths.map(deviceFile) } };
  }
  if (access === 'cdi') {
    const devices = gpuIds.map((id) => (id.includes('=') ? id : `nvidia.com/gpu=${id}`));
    return {
      env: { NVIDIA_VISIBLE_DEVICES: 'void' },
      hostConfig: { DeviceRequests: [{ Driver: 'cdi', DeviceIDs: devices }] },
    };
  }
  const which = gpuIds[0] === 'all' ? { Count: -1 } : { DeviceIDs: gpuIds };
  return { env: {}, hostConfig: { DeviceRequests: [{ Driver: 'nvidia', ...which, Capabilities: [['gpu']] }] } };
}

function deviceFile(path: string): object {
  return { PathOnHost: path, PathInContainer: path, CgroupPermissions: 'rw' };
}
