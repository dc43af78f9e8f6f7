import { execFile } from 'node:child_process';
import { isFileError } from '#base/config/config.ts';
import type { Log } from '#base/log.ts';
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

/** The GPUs of this machine that processes may use, from `nvidia-smi` on the PATH. */
export interface LocalGpus {
  /** The first call runs nvidia-smi; a later call runs it again, a while after a failure. */
  find(): Promise<FoundGpus>;
  /** Returns the use of GPUs with their programs; null if the GPUs cannot be read. */
  probe(gpuIds: readonly string[]): Promise<readonly GpuUse[] | null>;
  /** Returns the use of GPUs without their programs; null if the GPUs cannot be read. */
  read(gpuIds: readonly string[]): Promise<readonly GpuUse[] | null>;
}

export interface FoundGpus {
  readonly gpus: readonly Gpu[];
  /** Why no GPU was found; null if they were. */
  readonly trouble: string | null;
}

export interface LocalGpusOptions {
  /** The gateway's environment: PATH to `nvidia-smi`, and the devices it may assign in CUDA_VISIBLE_DEVICES. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Log;
}

const retryMs = 60_000;
const answerTimeoutMs = 10_000;

export function createLocalGpus({ env, log }: LocalGpusOptions): LocalGpus {
  let found: Promise<FoundGpus> | null = null;
  let retryAtMs = Infinity;

  function nothing(trouble: string): FoundGpus {
    log.warn(
      { trouble },
      'the GPUs of this machine are unknown: engines that need GPUs do not start here. Retrying every minute',
    );
    retryAtMs = performance.now() + retryMs;
    return { gpus: [], trouble };
  }

  async function ask(): Promise<FoundGpus> {
    try {
      const rows = await askNvidiaSmi(env, [inventoryQuery]);
      const listing = rows.some(isDivided) ? await runNvidiaSmi(env, [sliceList]) : [];
      const gpus = visibleGpus(rows, listing, env['CUDA_VISIBLE_DEVICES']);
      return gpus.length === 0 ? nothing('nvidia-smi lists no GPU that the gateway may use') : { gpus, trouble: null };
    } catch (error) {
      return nothing(troubleOf(error));
    }
  }

  return {
    find() {
      if (performance.now() >= retryAtMs) found = null;
      if (found === null) retryAtMs = Infinity;
      return (found ??= ask());
    },
    async read(gpuIds) {
      if (gpuIds.some(isSlice)) return null;
      const devices = await askNvidiaSmi(env, [idsOption(gpuIds), useQuery]).catch(() => null);
      return devices === null ? null : usesOfRows(devices, []);
    },
    async probe(gpuIds) {
      // Queries report on whole cards only.
      if (gpuIds.some(isSlice)) return null;
      try {
        const [devices, programs] = await Promise.all([
          askNvidiaSmi(env, [idsOption(gpuIds), useQuery]),
          askNvidiaSmi(env, [idsOption(gpuIds), programsQuery]).catch(() => []),
        ]);
        return usesOfRows(devices, programs);
      } catch (error) {
        log.warn(
          { trouble: troubleOf(error) },
          'the free GPU memory of this machine could not be read; the engine starts without this check',
        );
        return null;
      }
    },
  };
}

const idsOption = (gpuIds: readonly string[]): string => `--id=${gpuIds.join(',')}`;

function troubleOf(error: unknown): string {
  if (isFileError(error, 'ENOENT', 'ENOTDIR')) {
    return "nvidia-smi is not on the gateway's PATH";
  }
  return error instanceof Error ? error.message.trim() : String(error);
}

/**
 * Applies CUDA's own rule: indexes or prefixes of UUIDs; the first entry that matches neither hides the rest. A card
 * stands for all its slices.
 */
function visibleGpus(rows: readonly string[][], listing: readonly string[], visible: string | undefined): Gpu[] {
  const gpus = gpusOfRows(rows, listing);
  if (visible === undefined || visible === '') return gpus;
  const shown = new Map<string, Gpu>();
  for (const word of visible.split(',').map((part) => part.trim())) {
    const isIndex = /^\d+$/.test(word);
    const card = rows.find(([id = '', , , index]) => (isIndex ? index === word : id.startsWith(word)));
    const slice = gpus.find(({ id }) => !isIndex && id.startsWith(word));
    if (word === '' || (card === undefined && slice === undefined)) break;
    const named = card === undefined ? [slice] : gpusOfRows([card], listing);
    for (const gpu of named) if (gpu !== undefined) shown.set(gpu.id, gpu);
  }
  return [...shown.values()];
}

/** Returns rows of CSV without header and units. @throws with nvidia-smi's message if it fails */
async function askNvidiaSmi(env: LocalGpusOptions['env'], args: readonly string[]): Promise<string[][]> {
  const rows = (await runNvidiaSmi(env, [...args, csvFormat])).map(cellsOf);
  const wrong = wrongRow(rows);
  if (wrong !== null) throw new Error(`nvidia-smi reported: ${wrong}`);
  return rows;
}

/** Returns the lines of its output. @throws with nvidia-smi's message if it fails */
function runNvidiaSmi(env: LocalGpusOptions['env'], args: readonly string[]): Promise<string[]> {
  const path = { PATH: env['PATH'], LD_LIBRARY_PATH: env['LD_LIBRARY_PATH'] };
  return new Promise((resolve, reject) => {
    const options = { env: path, timeout: answerTimeoutMs, encoding: 'utf8' as const };
    execFile('nvidia-smi', args, options, (error, stdout, stderr) => {
      const firstLine = `${stdout}${stderr}`.trim().split('\n')[0] ?? '';
      if (error !== null) {
        reject(firstLine === '' ? error : new Error(`nvidia-smi reported: ${firstLine}`, { cause: error }));
        return;
      }
      resolve(stdout.split('\n').filter((line) => line.trim() !== ''));
    });
  });
}
