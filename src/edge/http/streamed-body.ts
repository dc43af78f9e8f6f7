import type { IncomingMessage } from 'node:http';
import { AppError } from '#base/errors.ts';
import { type BodyLimits, tooSlow } from './collect-body.ts';

/**
 * Yields the body of a request as its parts arrive: bytes that are not read yet stay with the client. Only the waiting
 * for the client is bounded, as for every body; the work on the parts is not.
 * @throws AppError request_timeout; invalid_request_error when the connection closes first
 */
export async function* streamedBody(
  incoming: IncomingMessage,
  { bodyStallTimeoutMs, bodyBytesPerSecondMin }: Omit<BodyLimits, 'bodyBytesMax'>,
): AsyncGenerator<Buffer, void> {
  let bytes = 0;
  let waitedMs = 0;
  for (;;) {
    const part: unknown = incoming.read();
    if (Buffer.isBuffer(part)) {
      bytes += part.length;
      yield part;
      continue;
    }
    if (incoming.readableEnded) return;
    const sinceMs = performance.now();
    if (!(await more(incoming, bodyStallTimeoutMs))) return;
    waitedMs += performance.now() - sinceMs;
    if (waitedMs > bodyStallTimeoutMs + (bytes / bodyBytesPerSecondMin) * 1000) {
      throw tooSlow(`The request body arrived at less than ${bodyBytesPerSecondMin} bytes per second.`);
    }
  }
}

/** @returns false at the end of the body */
function more(incoming: IncomingMessage, stallMs: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      clearTimeout(stalled);
      incoming.off('readable', onReadable).off('end', onEnd).off('close', onClose).off('error', onClose);
    };
    const onReadable = (): void => {
      leave();
      resolve(true);
    };
    const onEnd = (): void => {
      leave();
      resolve(false);
    };
    const onClose = (): void => {
      leave();
      if (incoming.readableEnded) resolve(false);
      else reject(connectionClosed());
    };
    const stalled = setTimeout(() => {
      leave();
      reject(tooSlow(`No data of the request body arrived for ${stallMs / 1000} seconds.`));
    }, stallMs);
    if (incoming.destroyed) onClose();
    else incoming.on('readable', onReadable).on('end', onEnd).on('close', onClose).on('error', onClose);
  });
}

const connectionClosed = (): AppError =>
  new AppError('invalid_request_error', { message: 'The connection closed before the request was complete.' });
