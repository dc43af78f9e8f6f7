import type { Gpu, GpuUse } from './driver.ts';

/** Queries for `nvidia-smi`, on this machine or in a container, and the parsing of its answers. */

export const csvFormat = '--format=csv,noheader,nounits';
export const inventoryQuery = '--query-gpu=uuid,memory.total,name';
export const useQuery = '--query-gpu=uuid,memory.used,memory.total';
export const programsQuery = '--query-compute-apps=gpu_uuid,pid,process_name';

const mebibyte = 2 ** 20;

/** Splits one line into its cells. */
export function cellsOf(line: string): string[] {
  return line.split(',').map((cell) => cell.trim());
}

/** Returns the first row that describes no device, which is nvidia-smi's error message; null if there is none. */
export function wrongRow(rows: readonly (readonly string[])[]): string | null {
  return rows.find((row) => !/^(GPU|MIG)-/.test(row[0] ?? ''))?.join(', ') ?? null;
}

/** Parses answers to `inventoryQuery`. */
export function gpusOfRows(rows: readonly (readonly string[])[]): Gpu[] {
  return rows.map(([id = '', total = '', name = '']) => ({
    id,
    memoryBytes: mebibytes(total),
    profile: name === '' ? null : name,
  }));
}

/** Parses answers to `useQuery` and `programsQuery`. */
export function usesOfRows(
  devices: readonly (readonly string[])[],
  programs: readonly (readonly string[])[],
): GpuUse[] {
  return devices.map(([gpuId = '', used = '', total = '']) => ({
    gpuId,
    usedBytes: mebibytes(used) ?? 0,
    totalBytes: mebibytes(total) ?? 0,
    processes: programs.filter(([on]) => on === gpuId).map(([, pid = '', name = '']) => `${name} (pid ${pid})`),
  }));
}

/** Parses `81559`; null for `[N/A]` and other texts. */
function mebibytes(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) * mebibyte : null;
}
