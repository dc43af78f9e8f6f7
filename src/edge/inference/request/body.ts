import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import { type BodyLimits, codingOf, tooLarge } from '#edge/http/http.ts';

const json = 'application/json';

/** @throws AppError unsupported_media_type, request_too_large */
export function checkHeaders(incoming: IncomingMessage, limits: BodyLimits): void {
  const contentType = incoming.headers['content-type'] ?? '';
  // Nearly all clients write it like this; other values are parsed.
  if (contentType !== json && contentType.split(';', 1)[0]?.trim().toLowerCase() !== json) {
    throw new AppError('unsupported_media_type');
  }
  codingOf(incoming);
  if (Number(incoming.headers['content-length'] ?? 0) > limits.bodyBytesMax) throw tooLarge(limits);
}

/** True if the whole body is here. Node's own flag follows only a moment after the last byte. */
function isWhole(incoming: IncomingMessage): boolean {
  const { complete, readableLength, headers } = incoming;
  return complete || (readableLength > 0 && readableLength === Number(headers['content-length']));
}

/**
 * Returns the body if all of it came with its head and without a content coding, as small ones do: there is nothing to
 * wait for then. Node delivers a head before it reads the bytes that came with it: after any wait they are there.
 * @throws AppError request_too_large
 */
export function takeWhole(incoming: IncomingMessage, limits: BodyLimits): Buffer | null {
  if (incoming.destroyed || !isWhole(incoming) || codingOf(incoming) !== null) return null;
  const bytes: unknown = incoming.read();
  if (!Buffer.isBuffer(bytes)) return Buffer.alloc(0);
  if (bytes.length > limits.bodyBytesMax) throw tooLarge(limits);
  return bytes;
}
