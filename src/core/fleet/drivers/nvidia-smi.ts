import type { Gpu, GpuUse } from './driver.ts';

/** Queries for `nvidia-smi`, on this machine or in a container, and the parsing of its answers. */

export const csvFormat = '--format=csv,noheader,nounits';
export const inventoryQuery = '--query-gpu=uuid,memory.total,name,index,mig.mode.current';
/** Lists cards, and below each card its MIG slices, which no query for cards lists. */
export const sliceList = '-L';
export const useQuery = '--query-gpu=uuid,memory.used,memory.total,utilization.gpu';
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

/** True for the UUID of a MIG slice, or for the name that CDI gives a slice: `0:1`. */
export function isSlice(gpuId: string): boolean {
  return /^(?:nvidia\.com\/gpu=)?(?:MIG-|\d+:\d+$)/.test(gpuId);
}

/** True for the row of a card in MIG mode: programs run in its slices only. */
export function isDivided([, , , , mode]: readonly string[]): boolean {
  return mode === 'Enabled';
}

/**
 * Parses answers to `inventoryQuery`. Slices take the place of their card; a divided card without slices is no device.
 * @param listing lines of `sliceList`: `GPU 0: NAME (UUID: GPU-…)`, `MIG 3g.20gb Device 0: (UUID: MIG-…)`
 */
export function gpusOfRows(rows: readonly (readonly string[])[], listing: readonly string[]): Gpu[] {
  const slices = slicesOf(listing);
  return rows.flatMap((row) => {
    const [id = '', total = '', name = ''] = row;
    if (!isDivided(row)) return [{ id, memoryBytes: mebibytes(total), profile: name === '' ? null : name }];
    const ofCard = slices.filter(({ card }) => card === id);
    return ofCard.map((slice) => ({
      id: slice.id,
      memoryBytes: gigabytes(slice.size),
      profile: `${name} MIG ${slice.size}`.trim(),
    }));
  });
}

/**
 * Returns the part of its card that a device is, in 28ths, from the profile that `gpusOfRows` gives it: a card has 7
 * compute slices, with the exceptions of `slicesOfCards`. A compute instance such as `1c.3g.20gb` has the first number.
 */
export function cardShare(profile: string | null): number {
  const [, card = '', slices = ''] = /^(.*)\bMIG (\d)[cg]\./.exec(profile ?? '') ?? [];
  const all = slicesOfCards.find(([names]) => names.test(card))?.[1] ?? 7;
  return slices === '' ? 28 : Math.min(28, (Number(slices) * 28) / all);
}

/** Compute slices of cards that do not have 7, as the table "Supported GPUs" of NVIDIA's MIG User Guide has them. */
const slicesOfCards: readonly (readonly [card: RegExp, slices: number])[] = [
  [/\bA30\b|RTX PRO 6000/i, 4],
  [/RTX PRO (?:5000|4500)/i, 2],
];

interface Slice {
  readonly id: string;
  /** UUID of its card. */
  readonly card: string;
  /** Name of its size: `3g.20gb` has three compute slices and 20 GB. */
  readonly size: string;
}

function slicesOf(listing: readonly string[]): Slice[] {
  const slices: Slice[] = [];
  let card = '';
  for (const line of listing) {
    const uuid = /\(UUID: ([\w/-]+)\)/.exec(line)?.[1];
    const size = /^\s*MIG (\S+)/.exec(line)?.[1];
    if (/^GPU \d+:/.test(line)) card = uuid ?? '';
    else if (size !== undefined && uuid !== undefined) slices.push({ id: uuid, card, size });
  }
  return slices;
}

/** Reads the memory in a name such as `1g.10gb+me`: decimal gigabytes, and a slice has at least as many. */
function gigabytes(size: string): number | null {
  const found = /\.(\d{1,4})gb/.exec(size)?.[1];
  return found === undefined ? null : Number(found) * 1e9;
}

/** Parses answers to `useQuery` and `programsQuery`. */
export function usesOfRows(
  devices: readonly (readonly string[])[],
  programs: readonly (readonly string[])[],
): GpuUse[] {
  return devices.map(([gpuId = '', used = '', total = '', percent = '']) => ({
    gpuId,
    usedBytes: mebibytes(used) ?? 0,
    totalBytes: mebibytes(total) ?? 0,
    busy: /^\d+$/.test(percent) ? Number(percent) / 100 : null,
    processes: programs.filter(([on]) => on === gpuId).map(([, pid = '', name = '']) => `${name} (pid ${pid})`),
  }));
}

/** Parses `81559`; null for `[N/A]` and other texts. */
function mebibytes(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) * mebibyte : null;
}
