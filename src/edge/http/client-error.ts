import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import { type Connections, unfinishedMax } from '#base/net/net.ts';
import { drainBody } from './drain-body.ts';

const lateHead = 'ERR_HTTP_REQUEST_TIMEOUT';

function toAppError(error: NodeJS.ErrnoException): AppError {
  if (error.code === lateHead) {
    return new AppError('request_timeout', { message: 'The request headers did not arrive in time.' });
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

/** Milliseconds for which a connection stays open after a rejection, so that its client can read the answer. */
const lingerMs = 1000;
const refusedSockets = new WeakSet<Duplex>();

/**
 * Answers bytes that Node's parser rejects, in OpenAI's envelope, and closes the connection, since nothing after these
 * bytes can be understood. Pending answers on the connection are sent first. Headers that arrived completely and are
 * not read yet are not late: their request is served.
 */
export function handleClientError(error: NodeJS.ErrnoException, socket: Duplex, connections: Connections): void {
  if (error.code === lateHead) connections.unlessAsked(socket, () => refuseClient(error, socket, connections));
  else refuseClient(error, socket, connections);
}

function refuseClient(error: NodeJS.ErrnoException, socket: Duplex, connections: Connections): void {
  // Node reports the bytes read together with the rejected bytes part by part; one answer is enough.
  if (refusedSockets.has(socket)) return;
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  refusedSockets.add(socket);
  socket.pause();
  connections.afterAnswers(socket, (unanswered) => {
    if (!socket.writable || unanswered?.headersSent === true) socket.destroy();
    else endWith(socket, toAppError(error));
  });
}

/**
 * Sends the error and closes the connection. Ending a socket closes only our side: a client that never closes its own
 * side would keep the descriptor.
 */
function endWith(socket: Duplex, refusal: AppError): void {
  const body = JSON.stringify(errorEnvelope(refusal));
  socket.end(
    `HTTP/1.1 ${refusal.status} ${statusTexts[refusal.status] ?? 'Bad Request'}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n` +
      `x-request-id: ${uuidv7()}\r\n\r\n${body}`,
  );
  const late = setTimeout(() => socket.destroy(), lingerMs);
  late.unref();
  socket.once('close', () => clearTimeout(late));
}

/**
 * True if a request names its host as HTTP requires: once, and only HTTP/1.0 may leave the host out (RFC 9112, section
 * 3.2). Node can reject a missing host itself, but without a body, and drops a second one.
 */
export function isAddressed({ rawHeaders, httpVersionMinor }: IncomingMessage): boolean {
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name?.length === 4 && (name === 'host' || name === 'Host' || name.toLowerCase() === 'host')) hosts += 1;
  }
  return hosts === 1 || (hosts === 0 && httpVersionMinor === 0);
}

/** Rejects a request that does not name its host. */
export function refuseUnaddressed(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const message = 'An HTTP/1.1 request must have exactly one Host header.';
  refuse(incoming, outgoing, new AppError('invalid_request_error', { message }));
}

/** Rejects a request with an `Expect` other than `100-continue` (RFC 9110, section 10.1.1). */
export function refuseExpectation(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const message = 'The header Expect may only have the value "100-continue".';
  refuse(incoming, outgoing, new AppError('invalid_request_error', { status: 417, message }));
}

/** Rejects a request beyond the unfinished requests that a connection may have, and closes the connection. */
export function refuseSurplus(outgoing: ServerResponse): void {
  const message = `A connection may have at most ${unfinishedMax} unfinished requests. Read their responses first.`;
  outgoing.setHeader('connection', 'close');
  refuse(outgoing.req, outgoing, new AppError('overloaded', { message }));
}

function refuse(incoming: IncomingMessage, outgoing: ServerResponse, refusal: AppError): void {
  if (!incoming.complete) outgoing.once('finish', () => drainBody(incoming));
  const body = JSON.stringify(errorEnvelope(refusal));
  const length = Buffer.byteLength(body);
  const headers = { 'content-type': 'application/json', 'content-length': length, 'x-request-id': uuidv7() };
  outgoing.writeHead(refusal.status, { ...headers, ...refusal.headers }).end(body);
}
