import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Looks at the free space of a disk before something large is downloaded to it. */

/** Reads the free bytes of the disk of a folder; null if they are unknown. */
export type ReadFreeBytes = (folder: string) => Promise<number | null>;

/** No model and no image of an engine is smaller. The size of a download is not known before it begins. */
const freeBytesMin = 2 ** 30;

/** Looks at the folder, or at the nearest one above it that exists. */
export const readFreeBytes: ReadFreeBytes = async (folder) => {
  try {
    const { bavail, bsize, blocks } = await statfs(folder);
    // File systems without blocks have no size.
    return blocks === 0 ? null : bavail * bsize;
  } catch {
    const above = dirname(folder);
    return above === folder ? null : readFreeBytes(above);
  }
};

/** @returns a sentence if the disk of the folder has too little space for a download; null if not, or if unknown */
export async function describeFullDisk(
  folder: string,
  readBytes: ReadFreeBytes = readFreeBytes,
): Promise<string | null> {
  const bytes = await readBytes(folder);
  if (bytes === null || bytes >= freeBytesMin) return null;
  const gib = (bytes / freeBytesMin).toFixed(1);
  return `The disk of ${folder} has ${gib} GiB free, and a download needs at least 1 GiB.`;
}
