import type { IncomingMessage } from 'node:http';
import type { Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import { AppError } from '#base/errors.ts';

/** Decoders by the content coding of a request body. */
const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress,
};
const codings = 'gzip, deflate, br, zstd';

/**
 * Largest ratio of decoded bytes to received bytes, beyond `freeBytes` that every body may have. Text has at most about
 * 20.
 */
const ratioMax = 200;
const freeBytes = 1_048_576;

/**
 * Returns the name of a body's content coding; null if there is none.
 * @throws AppError unsupported_media_type for an unknown content coding, or for several
 */
export function codingOf({ headers }: IncomingMessage): string | null {
  const coding = headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding === 'identity' || coding === '') return null;
  if (Object.hasOwn(decoders, coding)) return coding;
  const message = `The Content-Encoding of the body is not supported. Use ${codings}, or none.`;
  throw new AppError('unsupported_media_type', { message, headers: { 'accept-encoding': codings } });
}

/** Returns a stream that decodes the body; null without a coding. @throws AppError unsupported_media_type */
export function decoderOf(incoming: IncomingMessage): Transform | null {
  const coding = codingOf(incoming);
  return coding === null ? null : (decoders[coding]?.() ?? null);
}

export const undecodable = (): AppError =>
  new AppError('invalid_request_error', { message: 'The body does not match its Content-Encoding header.' });

/** @throws AppError request_too_large for a body that decodes to far more than any text does */
export function requireRatio(decodedBytes: number, receivedBytes: number): void {
  if (decodedBytes <= freeBytes + receivedBytes * ratioMax) return;
  throw new AppError('request_too_large', {
    message: `The request body decompresses to more than ${ratioMax} times its size. Send it without Content-Encoding.`,
  });
}
