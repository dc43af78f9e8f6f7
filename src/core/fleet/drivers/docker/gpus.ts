import { type DockerApi, type DockerInfo, readLogLines } from '#base/docker/docker.ts';
import type { GpuAccess } from '#core/catalog/catalog.ts';
import type { Gpu, GpuUse } from '#core/fleet/drivers/driver.ts';
import {
  cellsOf,
  csvFormat,
  gpusOfRows,
  inventoryQuery,
  programsQuery,
  useQuery,
  usesOfRows,
  wrongRow,
} from '#core/fleet/drivers/nvidia-smi.ts';
import { gpuSettings } from './container.ts';
import { labels } from './labels.ts';

/** What a Docker engine knows of its machine's GPUs, and what `nvidia-smi` in a container says of them. */

export interface DockerGpus {
  readonly access: GpuAccess;
  /** Without memory and product name; empty where the engine knows none. */
  readonly gpus: readonly Gpu[];
  /** The engine can give containers GPUs at all, known by name or not. */
  readonly mayHaveMore: boolean;
}

const cdiPrefix = 'nvidia.com/gpu=';

/**
 * CDI devices (engine 28.2 and later), the daemon's own list of generic resources, and whether nvidia's runtime is
 * there. CDI lists each device by index and by UUID, and all at once.
 */
export function gpusOfInfo(info: DockerInfo, wanted: GpuAccess | null): DockerGpus {
  const devices = (info.DiscoveredDevices ?? [])
    .filter(({ ID: id }) => id.startsWith(cdiPrefix) && id !== `${cdiPrefix}all`)
    .map(({ ID: id }) => id.slice(cdiPrefix.length));
  const uuids = devices.filter((id) => /^(GPU|MIG)-/.test(id));
  const cdi = uuids.length > 0 ? uuids : devices;
  const resources = (info.GenericResources ?? [])
    .map(({ NamedResourceSpec: spec }) => spec)
    .filter((spec) => spec !== null && spec !== undefined)
    .filter(({ Kind: kind }) => /gpu/i.test(kind))
    .map(({ Value: value }) => value);
  const hasRuntime = info.Runtimes?.['nvidia'] !== undefined;
  const access = wanted ?? (hasRuntime || cdi.length === 0 ? 'nvidia' : 'cdi');
  const ids = access === 'cdi' && cdi.length > 0 ? cdi : resources.length > 0 ? resources : cdi;
  return {
    access,
    gpus: ids.map((id) => ({ id, memoryBytes: null, profile: null })),
    mayHaveMore: hasRuntime || cdi.length > 0 || resources.length > 0 || wanted !== null,
  };
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

/** Every GPU that a container can be given there. @throws when it cannot be asked */
export async function probeInventory(options: Omit<ProbeOptions, 'gpuIds'>): Promise<Gpu[]> {
  return gpusOfRows(await runNvidiaSmi({ ...options, gpuIds: ['all'] }, inventoryQuery));
}

/** Memory of the given GPUs and who holds it. @throws when they cannot be asked */
export async function probeUse(options: ProbeOptions): Promise<GpuUse[]> {
  const [devices, programs] = await Promise.all([
    runNvidiaSmi(options, useQuery),
    // Where the machine's process ids may not be seen, memory in use still says enough.
    runNvidiaSmi(options, programsQuery).catch(() => []),
  ]);
  return usesOfRows(devices, programs);
}

/** Rows of CSV without header and units: `nvidia-smi … --format=csv,noheader,nounits`. */
async function runNvidiaSmi({ api, fleetId, image, access, gpuIds }: ProbeOptions, query: string): Promise<string[][]> {
  const gpu = gpuSettings(access, gpuIds);
  probeCount += 1;
  const name = `headgate-probe-${process.pid}-${Date.now().toString(36)}-${probeCount}`;
  const env = { ...gpu.env, NVIDIA_DRIVER_CAPABILITIES: 'utility' };
  const signal = AbortSignal.timeout(probeTimeoutMs);
  const container = await api.create(name, {
    Image: image,
    Entrypoint: ['nvidia-smi'],
    Cmd: [query, csvFormat],
    Env: Object.entries(env).map(([variable, value]) => `${variable}=${value}`),
    Labels: { [labels.managed]: 'true', [labels.fleet]: fleetId, [labels.probe]: 'true' },
    NetworkDisabled: true,
    Healthcheck: { Test: ['NONE'] },
    // Removed by the engine, also when this gateway ends meanwhile. The names of other processes are seen only with
    // the machine's process ids.
    HostConfig: {
      AutoRemove: true,
      NetworkMode: 'none',
      SecurityOpt: ['no-new-privileges'],
      PidMode: query === programsQuery ? 'host' : '',
      ...gpu.hostConfig,
    },
  });
  try {
    const output = await api.attach(container, signal);
    await api.start(container);
    const rows: string[][] = [];
    for await (const line of readLogLines(output, signal)) rows.push(cellsOf(line));
    if (signal.aborted) throw new Error('nvidia-smi did not end in time.');
    const wrong = wrongRow(rows);
    if (wrong !== null) throw new Error(`nvidia-smi said: ${wrong}`);
    return rows;
  } finally {
    await api.remove(container, true).catch(() => undefined);
  }
}
