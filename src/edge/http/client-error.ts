import type { Duplex } from 'node:stream';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';

function toAppError(error: NodeJS.ErrnoException): AppError {
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new AppError('request_timeout', { message: 'The request headers were not complete in time.' });
  }
  if (error.code === 'HPE_HEADER_OVERFLOW') {
    return new AppError('invalid_request_error', { status: 431, message: 'The request headers are too large.' });
  }
  return new AppError('invalid_request_error', { message: 'This is not a valid HTTP/1.1 request.' });
}

const statusTexts: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
};

/** Answers what Node's parser refuses, in the one envelope, and closes: nothing more can be understood after it. */
export function handleClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const refusal = toAppError(error);
  const body = JSON.stringify(errorEnvelope(refusal));
  socket.end(
    `HTTP/1.1 ${refusal.status} ${statusTexts[refusal.status] ?? 'Bad Request'}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n` +
      `x-request-id: ${uuidv7()}\r\n\r\n${body}`,
  );
}
