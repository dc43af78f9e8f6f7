import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import { decoderOf, requireRatio, undecodable } from './content-coding.ts';

export interface BodyLimits {
  readonly bodyBytesMax: number;
  /** Milliseconds without a byte after which the request ends. */
  readonly bodyStallTimeoutMs: number;
  /** Average bytes per second that a body needs once `bodyStallTimeoutMs` have passed. */
  readonly bodyBytesPerSecondMin: number;
}

/** Reports that the client closed the connection before its request was complete: nobody is left to answer. */
export class ClientGoneError extends Error {
  constructor() {
    super('the client closed the connection before its request was complete');
    this.name = 'ClientGoneError';
  }
}

export const tooLarge = ({ bodyBytesMax }: Pick<BodyLimits, 'bodyBytesMax'>): AppError =>
  new AppError('request_too_large', {
    message: `The request body is larger than ${bodyBytesMax} bytes.`,
    reason: 'HEADGATE_MAX_BODY_BYTES',
  });

/**
 * Smallest part that is kept as a buffer of its own. Smaller parts are merged: a buffer of one byte takes about a
 * hundred.
 */
const partBytesMin = 4096;
const blockBytes = 65_536;

/** Collects the parts of a body in memory of about the body's length. */
class Parts {
  readonly list: Buffer[] = [];
  #block = Buffer.alloc(0);
  #blockUsed = 0;
  bytes = 0;

  add(part: Buffer): void {
    this.bytes += part.length;
    if (part.length >= partBytesMin) {
      this.#closeBlock();
      this.list.push(part);
      return;
    }
    if (this.#blockUsed + part.length > this.#block.length) {
      this.#closeBlock();
      this.#block = Buffer.allocUnsafeSlow(blockBytes);
    }
    this.#blockUsed += part.copy(this.#block, this.#blockUsed);
  }

  end(): void {
    this.#closeBlock();
  }

  #closeBlock(): void {
    if (this.#blockUsed === 0) return;
    this.list.push(this.#block.subarray(0, this.#blockUsed));
    this.#block = this.#block.subarray(this.#blockUsed);
    this.#blockUsed = 0;
  }
}

/**
 * Reads a body to its end, and decodes a body with a content coding. All bounds except the pace apply to the decoded
 * bytes.
 * @returns the parts of the body; small parts are merged, so that only the last part of a row is small
 * @param onPart called with the length of each part; an error that it throws rejects the body
 * @throws AppError request_too_large, request_timeout, unsupported_media_type, invalid_request_error; ClientGoneError
 * when the connection closes first
 */
export function collectBody(
  incoming: IncomingMessage,
  limits: BodyLimits,
  onPart: (bytes: number) => void,
): Promise<readonly Buffer[]> {
  return new Promise((resolve, reject) => {
    const parts = new Parts();
    const decoder = decoderOf(incoming);
    const source = decoder ?? incoming;
    let receivedBytes = 0;
    const sinceMs = performance.now();
    const stallSeconds = limits.bodyStallTimeoutMs / 1000;
    const refuse = (error: unknown): void => {
      leave();
      reject(error);
    };
    const stalled = setTimeout(
      () => refuse(tooSlow(`No data of the request body arrived for ${stallSeconds} seconds.`)),
      limits.bodyStallTimeoutMs,
    );
    const leave = (): void => {
      clearTimeout(stalled);
      incoming.off('data', onReceived).off('close', onClose).off('error', onClose);
      source.off('data', onData).off('end', onEnd);
      if (decoder === null) return;
      incoming.unpipe(decoder);
      decoder
        .off('error', onBroken)
        .on('error', () => undefined)
        .destroy();
    };
    const onReceived = (part: Buffer): void => {
      receivedBytes += part.length;
      stalled.refresh();
    };
    const onData = (part: Buffer): void => {
      try {
        if (parts.bytes + part.length > limits.bodyBytesMax) throw tooLarge(limits);
        onPart(part.length);
        parts.add(part);
        requirePace((performance.now() - sinceMs) / 1000, receivedBytes, limits);
        if (decoder !== null) requireRatio(parts.bytes, receivedBytes);
      } catch (error) {
        refuse(error);
      }
    };
    const onEnd = (): void => {
      leave();
      parts.end();
      resolve(parts.list);
    };
    const onBroken = (): void => refuse(undecodable());
    const onClose = (): void => {
      // A body that arrived completely is still being decoded.
      if (decoder === null || !incoming.complete) refuse(new ClientGoneError());
    };
    incoming.on('data', onReceived).on('close', onClose).on('error', onClose);
    source.on('data', onData).on('end', onEnd);
    decoder?.on('error', onBroken);
    if (decoder !== null) incoming.pipe(decoder);
  });
}

function requirePace(seconds: number, bytes: number, limits: BodyLimits): void {
  const { bodyStallTimeoutMs, bodyBytesPerSecondMin } = limits;
  if (seconds <= bodyStallTimeoutMs / 1000 + bytes / bodyBytesPerSecondMin) return;
  throw tooSlow(`The request body arrived at less than ${bodyBytesPerSecondMin} bytes per second.`);
}

export function tooSlow(message: string): AppError {
  return new AppError('request_timeout', { message, headers: { connection: 'close' } });
}
