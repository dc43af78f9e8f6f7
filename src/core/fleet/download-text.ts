import type { Download } from '#core/fleet/store/store.ts';

/** Describes a download of weights, such as `downloading the model: 3.2 GiB, 85.4 MiB/s`. Names nothing, for clients. */
export function downloadText({ bytes, bytesPerSecond }: Download): string {
  return `downloading the model: ${sizeText(bytes)}, ${sizeText(bytesPerSecond)}/s`;
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** Returns a size with one decimal, such as `3.2 GiB`; bytes have none. */
export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
