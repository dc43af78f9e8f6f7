import { type DockerApi, type DockerInfo, readLogLines } from '#base/docker/docker.ts';
import type { GpuAccess } from '#core/catalog/catalog.ts';
import type { Gpu, GpuUse } from '#core/fleet/drivers/driver.ts';
import {
  cellsOf,
  csvFormat,
  gpusOfRows,
  inventoryQuery,
  isDivided,
  isSlice,
  programsQuery,
  sliceList,
  useQuery,
  usesOfRows,
  wrongRow,
} from '#core/fleet/drivers/nvidia-smi.ts';
import { gpuSettings } from './container.ts';
import { labels } from './labels.ts';

/** Combines a Docker engine's own knowledge of its GPUs with the answers of `nvidia-smi` in a container. */

export interface DockerGpus {
  readonly access: GpuAccess;
  /** Without memory and product name; empty if the engine knows no GPU. */
  readonly gpus: readonly Gpu[];
  /** True if `nvidia-smi` may know more: the engine can give GPUs of NVIDIA to containers, even if it lists none. */
  readonly mayHaveMore: boolean;
}

const cdiPrefix = 'nvidia.com/gpu=';
/** CDI devices of AMD and Intel. Their ids and profiles have the kind, which is all that the Docker engine reports. */
const otherDevice = /^((?:amd|intel)\.com\/gpu)=/;

/**
 * Reads CDI devices (engine 28.2 and later), the daemon's generic resources, and the presence of nvidia's runtime. CDI
 * lists each device of NVIDIA by index and by UUID, and all of them as one.
 */
export function gpusOfInfo(info: DockerInfo, wanted: GpuAccess | null): DockerGpus {
  const { cdi, resources, others } = devicesOfInfo(info);
  const hasRuntime = info.Runtimes?.['nvidia'] !== undefined;
  const access = wanted ?? (hasRuntime || cdi.length + others.length === 0 ? 'nvidia' : 'cdi');
  const ids = access === 'cdi' && cdi.length > 0 ? cdi : resources.length > 0 ? resources : cdi;
  const all = access === 'cdi' ? [...ids, ...others] : ids;
  return {
    access,
    gpus: all.map((id) => ({ id, memoryBytes: null, profile: otherDevice.exec(id)?.[1] ?? null })),
    mayHaveMore: hasRuntime || cdi.length > 0 || resources.length > 0 || (wanted !== null && all.length === 0),
  };
}

/** Returns the ids that a Docker engine knows: of NVIDIA by CDI and as generic resources, and of others by CDI. */
function devicesOfInfo(info: DockerInfo) {
  const discovered = (info.DiscoveredDevices ?? []).map(({ ID: id }) => id).filter((id) => !id.endsWith('=all'));
  const devices = discovered.filter((id) => id.startsWith(cdiPrefix)).map((id) => id.slice(cdiPrefix.length));
  const others = discovered.filter((id) => otherDevice.test(id));
  const uuids = devices.filter((id) => /^(GPU|MIG)-/.test(id));
  const cdi = uuids.length > 0 ? uuids : devices;
  const resources = (info.GenericResources ?? [])
    .map(({ NamedResourceSpec: spec }) => spec)
    .filter((spec) => spec !== null && spec !== undefined)
    .filter(({ Kind: kind }) => /gpu/i.test(kind))
    .map(({ Value: value }) => value);
  return { cdi, resources, others };
}

/** True for a device that `nvidia-smi` lists. */
export function isOfNvidia(gpuId: string): boolean {
  return !otherDevice.test(gpuId) && !/^renderD\d/.test(gpuId);
}

/** True if queries of `nvidia-smi` report the memory in use. They report on whole cards only. */
export function reportsUse(gpuId: string): boolean {
  return isOfNvidia(gpuId) && !isSlice(gpuId);
}

export interface ProbeOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly image: string;
  readonly access: GpuAccess;
  readonly gpuIds: readonly string[];
}

const probeTimeoutMs = 20_000;
let probeCount = 0;

/** Returns every GPU that a container can get on the host. @throws if the probe fails */
export async function probeInventory(options: Omit<ProbeOptions, 'gpuIds'>): Promise<Gpu[]> {
  const all = { ...options, gpuIds: ['all'] };
  const rows = await askNvidiaSmi(all, inventoryQuery);
  return gpusOfRows(rows, rows.some(isDivided) ? await runNvidiaSmi(all, [sliceList]) : []);
}

/** Returns the use of the given GPUs, without their programs. @throws if the probe fails */
export async function readUse(options: ProbeOptions): Promise<GpuUse[]> {
  return usesOfRows(await askNvidiaSmi(options, useQuery), []);
}

/** Returns the use of the given GPUs, with their programs. @throws if the probe fails */
export async function probeUse(options: ProbeOptions): Promise<GpuUse[]> {
  const [devices, programs] = await Promise.all([
    askNvidiaSmi(options, useQuery),
    // Without access to the machine's process ids, the memory in use is still enough.
    askNvidiaSmi(options, programsQuery).catch(() => []),
  ]);
  return usesOfRows(devices, programs);
}

/** Returns rows of CSV without header and units: `nvidia-smi … --format=csv,noheader,nounits`. */
async function askNvidiaSmi(options: ProbeOptions, query: string): Promise<string[][]> {
  const rows = (await runNvidiaSmi(options, [query, csvFormat])).map(cellsOf);
  const wrong = wrongRow(rows);
  if (wrong !== null) throw new Error(`nvidia-smi reported: ${wrong}`);
  return rows;
}

async function runNvidiaSmi(
  { api, fleetId, image, access, gpuIds }: ProbeOptions,
  args: readonly string[],
): Promise<string[]> {
  const gpu = gpuSettings(access, gpuIds);
  probeCount += 1;
  const name = `headgate-probe-${process.pid}-${Date.now().toString(36)}-${probeCount}`;
  const env = { ...gpu.env, NVIDIA_DRIVER_CAPABILITIES: 'utility' };
  const signal = AbortSignal.timeout(probeTimeoutMs);
  const container = await api.create(name, {
    Image: image,
    Entrypoint: ['nvidia-smi'],
    Cmd: args,
    Env: Object.entries(env).map(([variable, value]) => `${variable}=${value}`),
    Labels: { [labels.managed]: 'true', [labels.fleet]: fleetId, [labels.probe]: 'true' },
    NetworkDisabled: true,
    Healthcheck: { Test: ['NONE'] },
    // The Docker engine removes the container, even if this gateway ends meanwhile. Names of other processes are
    // visible only with the machine's process ids.
    HostConfig: {
      AutoRemove: true,
      NetworkMode: 'none',
      SecurityOpt: ['no-new-privileges'],
      PidMode: args.includes(programsQuery) ? 'host' : '',
      ...gpu.hostConfig,
    },
  });
  try {
    const output = await api.attach(container, signal);
    await api.start(container);
    const lines: string[] = [];
    for await (const line of readLogLines(output, signal)) lines.push(line);
    if (signal.aborted) throw new Error('nvidia-smi timed out.');
    return lines;
  } finally {
    await api.remove(container, true).catch(() => undefined);
  }
}
