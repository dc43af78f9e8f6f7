import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { dialFirst, isPublicAddress, literalAddress, type Outbound } from '#base/net/net.ts';
import { type AddressRule, isAllowedHost, portOf, problemOfUrl } from './address.ts';

/** Sends one signed message to a receiver. */

/** Reason for a failed attempt, in one word. */
export type SendError = 'address' | 'unknown_host' | 'not_public' | 'unreachable' | 'timeout' | 'redirect' | 'status';

/** Result of an attempt. Only the response's status and its Retry-After header are read. */
export interface SendResult {
  readonly status: number | null;
  /** Null if delivered. */
  readonly error: SendError | null;
  /** Milliseconds that the receiver asks to wait; null if it does not ask. */
  readonly retryAfterMs: number | null;
}

export interface Sending extends AddressRule {
  readonly outbound: Outbound;
  readonly timeoutMs: number;
}

export interface Outgoing {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON text. */
  readonly body: string;
}

class SendFailure extends Error {
  readonly reason: SendError;

  constructor(reason: SendError) {
    super(reason);
    this.reason = reason;
  }
}

const responseHeadersMax = 16_384;

/**
 * Makes one attempt. The host is resolved once, all its addresses are checked, and the connection goes to the first
 * that accepts. Redirects are not followed, and no cookie, key or part of any request is sent along. Never rejects.
 * @param closing ends the attempt when aborted
 */
export async function sendWebhook(
  outgoing: Outgoing,
  sending: Sending,
  closing = new AbortController().signal,
): Promise<SendResult> {
  const deadline = new AbortController();
  const end = (): void => deadline.abort(new SendFailure('timeout'));
  const timer = setTimeout(end, sending.timeoutMs);
  closing.addEventListener('abort', end, { once: true });
  try {
    if (closing.aborted) throw new SendFailure('timeout');
    return await post(outgoing, sending, deadline.signal);
  } catch (error) {
    return { status: null, error: error instanceof SendFailure ? error.reason : 'unreachable', retryAfterMs: null };
  } finally {
    clearTimeout(timer);
    closing.removeEventListener('abort', end);
  }
}

async function post(outgoing: Outgoing, sending: Sending, signal: AbortSignal): Promise<SendResult> {
  // The address may have been allowed when it was stored and not any more.
  if (problemOfUrl(sending, outgoing.url) !== null) throw new SendFailure('address');
  const url = new URL(outgoing.url);
  const addresses = await addressesOf(url, sending, signal);
  const socket = await connectTo(url, addresses, sending.outbound, signal);
  try {
    return resultOf(await exchange(url, socket, outgoing, signal));
  } finally {
    socket.destroy();
  }
}

/**
 * Returns the addresses that the connection may use, so that the name is not resolved a second time. @throws
 * SendFailure
 */
async function addressesOf(url: URL, sending: Sending, signal: AbortSignal): Promise<readonly string[]> {
  const literal = literalAddress(url.hostname);
  const found = literal === null ? await sending.outbound.resolve(url.hostname, signal).catch(() => []) : [literal];
  signal.throwIfAborted();
  if (found.length === 0) throw new SendFailure('unknown_host');
  if (!isAllowedHost(sending, url) && !found.every(isPublicAddress)) throw new SendFailure('not_public');
  return found;
}

/** @throws SendFailure if no address accepts a connection */
async function connectTo(
  url: URL,
  addresses: readonly string[],
  outbound: Outbound,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = await dialFirst(outbound, addresses, portOf(url), signal).catch((error: unknown) => {
    throw signal.aborted ? error : new SendFailure('unreachable');
  });
  return url.protocol === 'https:' ? secured(url, socket, signal) : socket;
}

function secured(url: URL, socket: Socket, signal: AbortSignal): Promise<Socket> {
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const servername = literalAddress(url.hostname) === null ? url.hostname : '';
  const tls = connectTls({ socket, servername, host, ALPNProtocols: ['http/1.1'] });
  socket.on('error', () => tls.destroy());
  return untilSecure(tls, signal);
}

/** Resolves with the socket once it is secure; destroys it on failure or timeout. */
function untilSecure(socket: TLSSocket, signal: AbortSignal): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      socket.destroy();
      reject(error);
    };
    const leave = (): void => fail(signal.reason as Error);
    if (signal.aborted) return leave();
    signal.addEventListener('abort', leave, { once: true });
    // Stays registered: a socket's error without a listener ends the process.
    socket.on('error', fail);
    socket.once('close', () => reject(new SendFailure('unreachable')));
    socket.once('secureConnect', () => {
      signal.removeEventListener('abort', leave);
      resolve(socket);
    });
  });
}

function exchange(
  url: URL,
  socket: Socket,
  { headers, body }: Outgoing,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const begin = url.protocol === 'https:' ? requestHttps : requestHttp;
    const outgoing = begin(url, {
      method: 'POST',
      // Any agent, and `false` too, would resolve the name and connect by itself.
      createConnection: () => socket,
      // Without an agent the default port is unknown, and the Host header would contain a port.
      defaultPort: url.protocol === 'https:' ? 443 : 80,
      signal,
      headers: {
        'user-agent': 'headgate',
        accept: '*/*',
        connection: 'close',
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        ...headers,
      },
      maxHeaderSize: responseHeadersMax,
    });
    outgoing.on('response', (response) => {
      // Nobody reads the response, so errors from cutting it off are ignored.
      response.on('error', () => undefined);
      resolve(response);
    });
    const fail = (): void => reject(signal.aborted ? (signal.reason as Error) : new SendFailure('unreachable'));
    outgoing.on('error', fail);
    // For a response that changes the protocol, Node.js emits only this event: no response and no error.
    outgoing.on('close', fail);
    outgoing.end(body);
  });
}

const retryAfterMsMax = 6 * 3_600_000;

function resultOf({ statusCode = 0, headers }: IncomingMessage): SendResult {
  const asked = headers['retry-after'] ?? '';
  const retryAfterMs = /^\d{1,9}$/.test(asked) ? Math.min(Number(asked) * 1000, retryAfterMsMax) : null;
  const isDelivered = statusCode >= 200 && statusCode < 300;
  const isElsewhere = statusCode >= 300 && statusCode < 400;
  return { status: statusCode, error: isDelivered ? null : isElsewhere ? 'redirect' : 'status', retryAfterMs };
}
