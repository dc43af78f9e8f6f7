import { promisify } from 'node:util';
import { zstdCompress, zstdDecompress } from 'node:zlib';

const compressBytes = promisify(zstdCompress);
const decompressBytes = promisify(zstdDecompress);

/** Compresses with Zstandard, off the event loop. */
export function compress(bytes: Buffer): Promise<Buffer> {
  return compressBytes(bytes);
}

export function decompress(bytes: Buffer): Promise<Buffer> {
  return decompressBytes(bytes);
}
