import { buffer } from 'node:stream/consumers';
import yazl from 'yazl';

export interface ZippedFile {
  /** Relative, with "/". */
  readonly path: string;
  readonly bytes: Buffer;
  readonly isExecutable: boolean;
}

/** The first moment that a zip can say. */
const noTime = new Date(1980, 0, 1);
const [regularFile, executableFile] = [0o100_644, 0o100_755];

/**
 * A zip of files in the order of their names. The same files make the same bytes: no time stands in it, and nothing is
 * compressed unless that is asked for, since another zlib compresses otherwise.
 */
export async function packZip(files: readonly ZippedFile[], { compress }: { compress: boolean }): Promise<Buffer> {
  const zip = new yazl.ZipFile();
  for (const { path, bytes, isExecutable } of files.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const mode = isExecutable ? executableFile : regularFile;
    zip.addBuffer(bytes, path, { mtime: noTime, mode, compress, forceDosTimestamp: true });
  }
  zip.end();
  return buffer(zip.outputStream);
}
