import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';

export interface BodyLimits {
  readonly bodyBytesMax: number;
  /** No byte for this long ends the request. */
  readonly bodyStallTimeoutMs: number;
}

/** The client went away while its request was still coming in: nobody is left to answer. */
export class ClientGoneError extends Error {
  constructor() {
    super('the client closed the connection before its request was complete');
    this.name = 'ClientGoneError';
  }
}

const json = 'application/json';

function checkHeaders(incoming: IncomingMessage, limits: BodyLimits): void {
  const contentType = incoming.headers['content-type'] ?? '';
  // As nearly all write it; the others are looked at more closely.
  if (contentType !== json && contentType.split(';', 1)[0]?.trim().toLowerCase() !== json) {
    throw new AppError('unsupported_media_type');
  }
  const encoding = incoming.headers['content-encoding']?.toLowerCase() ?? 'identity';
  if (encoding !== 'identity') {
    throw new AppError('unsupported_media_type', { message: 'Send the body without a content encoding.' });
  }
  if (Number(incoming.headers['content-length'] ?? 0) > limits.bodyBytesMax) throw tooLarge(limits);
}

const tooLarge = ({ bodyBytesMax }: BodyLimits): AppError =>
  new AppError('request_too_large', { message: `The request body is larger than ${bodyBytesMax} bytes.` });

function collect(incoming: IncomingMessage, limits: BodyLimits): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const stalled = setTimeout(() => {
      leave();
      const message = `No part of the request body came for ${limits.bodyStallTimeoutMs / 1000} seconds.`;
      reject(new AppError('request_timeout', { message, headers: { connection: 'close' } }));
    }, limits.bodyStallTimeoutMs);
    const leave = (): void => {
      clearTimeout(stalled);
      incoming.off('data', onData).off('end', onEnd).off('close', onClose).off('error', onClose);
    };
    const onData = (chunk: Buffer): void => {
      stalled.refresh();
      bytes += chunk.length;
      if (bytes > limits.bodyBytesMax) {
        leave();
        reject(tooLarge(limits));
        return;
      }
      chunks.push(chunk);
    };
    const onEnd = (): void => {
      leave();
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
    };
    const onClose = (): void => {
      leave();
      reject(new ClientGoneError());
    };
    incoming.on('data', onData).on('end', onEnd).on('close', onClose).on('error', onClose);
  });
}

/** Node says so itself only a moment after the last byte. */
function isWhole(incoming: IncomingMessage): boolean {
  const { complete, readableLength, headers } = incoming;
  return complete || (readableLength > 0 && readableLength === Number(headers['content-length']));
}

/** The body, when all of it came with its head, as small ones do: nothing has to be waited for then. */
function takeWhole(incoming: IncomingMessage, limits: BodyLimits): Buffer | null {
  if (incoming.destroyed || !isWhole(incoming)) return null;
  const bytes: unknown = incoming.read();
  if (!Buffer.isBuffer(bytes)) return Buffer.alloc(0);
  if (bytes.length > limits.bodyBytesMax) throw tooLarge(limits);
  return bytes;
}

/** @throws AppError invalid_request_error */
function textOf(body: Buffer): string {
  if (!isUtf8(body)) throw new AppError('invalid_request_error', { message: 'The request body is not UTF-8.' });
  return body.toString('latin1');
}

/**
 * Reads a JSON body whole, at once where all of it is here. A head is handed on before the bytes that came with it are
 * read: whoever waits a moment before he asks, for anything, finds them.
 * @returns its bytes as latin1, one character each
 * @throws AppError unsupported_media_type, request_too_large, request_timeout, invalid_request_error;
 *   ClientGoneError when the connection closes first
 */
export function readBody(incoming: IncomingMessage, limits: BodyLimits): string | Promise<string> {
  checkHeaders(incoming, limits);
  const whole = takeWhole(incoming, limits);
  return whole === null ? collect(incoming, limits).then(textOf) : textOf(whole);
}
