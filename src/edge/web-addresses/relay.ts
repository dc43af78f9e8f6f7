import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Entrance, Exposure, Exposures } from '#core/web-addresses/web-addresses.ts';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { bodyHeaders, requestHeaders, responseHeaders } from './headers.ts';
import type { LiveConnection, LiveConnections } from './live.ts';
import { answer, type Page, pages, render } from './pages.ts';

/** Passes requests on to applications. Each request has its own connection, so that answers cannot be mixed up. */

export interface RelayParts {
  readonly exposures: Pick<Exposures, 'connect'>;
  readonly live: LiveConnections;
  readonly clock: Clock;
  readonly wholeAddressOf: (incoming: IncomingMessage) => string;
  readonly log: Log;
  readonly bodyStallMs: number;
  /** Milliseconds from the last part of the body that went to the application to the first byte of its answer. */
  readonly firstByteMs: number;
}

export interface Opened {
  readonly exposure: Exposure;
  readonly entrance: Entrance | null;
}

/** Ends the client's connection when it is cut, and when its cookie or the key behind the cookie expires. */
function watch(
  { exposure, entrance }: Opened,
  { live, clock }: RelayParts,
  client: Duplex,
  isLong: () => boolean,
): { readonly isCut: () => boolean; readonly end: () => void; readonly attach: (stream: Duplex) => void } | null {
  let isCut = false;
  const streams: Duplex[] = [client];
  const connection: LiveConnection = {
    holder: entrance?.holder ?? null,
    isLong,
    destroy() {
      isCut = true;
      for (const stream of streams) stream.destroy();
    },
  };
  if (!live.add(exposure, connection)) return null;
  const leftMs = entrance === null ? null : Math.max(0, entrance.expiresAtMs - clock.now());
  const timer = leftMs === null ? null : setTimeout(connection.destroy, leftMs).unref();
  return {
    isCut: () => isCut,
    attach: (stream) => void streams.push(stream),
    end() {
      if (timer !== null) clearTimeout(timer);
      live.remove(exposure, connection);
    },
  };
}

export async function relayRequest(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  opened: Opened,
  parts: RelayParts,
): Promise<void> {
  const { exposures, log, firstByteMs } = parts;
  const fail = (page: Page): void => answer(incoming, outgoing, page);
  let isStream = false;
  const watched = watch(opened, parts, incoming.socket, () => isStream);
  if (watched === null) {
    fail(pages.tooMany);
    return;
  }
  outgoing.once('close', watched.end);
  const stream = await exposures.connect(opened.exposure).catch(() => null);
  if (stream === null || watched.isCut() || outgoing.destroyed) {
    stream?.destroy();
    fail(pages.noAnswer);
    return;
  }
  watched.attach(stream);
  const headers = [...requestHeaders(incoming, parts.wholeAddressOf(incoming)), ...bodyHeaders(incoming)];
  const asked = request({ method: incoming.method, path: incoming.url, headers, createConnection: () => stream });
  const timer = setTimeout(() => {
    fail(pages.tooSlow);
    asked.destroy();
  }, firstByteMs);
  outgoing.once('close', () => {
    clearTimeout(timer);
    asked.destroy();
    stream.destroy();
  });
  asked.on('response', (response) => {
    clearTimeout(timer);
    isStream = (response.headers['content-type'] ?? '').startsWith('text/event-stream');
    response.on('error', () => outgoing.destroy());
    response.on('aborted', () => outgoing.destroy());
    try {
      outgoing.writeHead(response.statusCode ?? 502, responseHeaders(response));
      outgoing.flushHeaders();
    } catch (error) {
      log.debug(
        { err: error, host: opened.exposure.host },
        'the program behind the web address of a run sent invalid headers; the visitor got an error page',
      );
      asked.destroy();
      fail(pages.broken);
      return;
    }
    response.pipe(outgoing);
  });
  // The application switches protocols although nobody asked for it.
  asked.on('upgrade', (_, socket) => {
    socket.destroy();
    fail(pages.broken);
  });
  asked.on('error', (error: NodeJS.ErrnoException) => {
    clearTimeout(timer);
    if (outgoing.writableEnded) return;
    fail((error.code ?? '').startsWith('HPE_') ? pages.broken : pages.noAnswer);
  });
  cutStalled(incoming, parts.bodyStallMs);
  // While the application does not read, the body pauses and the timer runs on.
  incoming.on('data', () => timer.refresh());
  outgoing.once('finish', () => endUnread(incoming, parts.bodyStallMs));
  incoming.pipe(asked);
}

/**
 * Ends an unfinished body after an early answer: the application may answer before the body has arrived, and the rest
 * gets as long as a pause may take.
 */
function endUnread(incoming: IncomingMessage, leftMs: number): void {
  if (incoming.complete) return;
  const { socket } = incoming;
  setTimeout(() => {
    if (!incoming.complete) socket.destroy();
  }, leftMs).unref();
}

/** Ends clients that start a body and stop sending it, because they occupy a connection to the application. */
function cutStalled(incoming: IncomingMessage, stallMs: number): void {
  if (incoming.complete) return;
  const timer = setTimeout(() => {
    // Paused: the application does not read, and the client is not at fault.
    if (incoming.complete || incoming.isPaused()) timer.refresh();
    else incoming.socket.destroy();
  }, stallMs);
  timer.unref();
  incoming.on('data', () => timer.refresh());
  for (const event of ['end', 'close'] as const) incoming.once(event, () => clearTimeout(timer));
}

/** Writes a page on a connection that requested a websocket. */
export function refuseUpgrade(incoming: IncomingMessage, socket: Duplex, page: Page): void {
  const { type, body } = render(page, incoming.headers.accept ?? '');
  const headers = Object.entries({ ...page.headers, 'content-type': type, 'content-length': Buffer.byteLength(body) });
  const lines = headers.map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${page.status} \r\nconnection: close\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
}

export async function relayUpgrade(
  { incoming, socket, head }: { incoming: IncomingMessage; socket: Duplex; head: Buffer },
  opened: Opened,
  parts: RelayParts,
): Promise<void> {
  const fail = (page: Page): void => {
    if (socket.writable) refuseUpgrade(incoming, socket, page);
    else socket.destroy();
  };
  const watched = watch(opened, parts, socket, () => true);
  if (watched === null) {
    fail(pages.tooMany);
    return;
  }
  socket.once('close', watched.end);
  const stream = await parts.exposures.connect(opened.exposure).catch(() => null);
  if (stream === null || watched.isCut() || socket.destroyed) {
    stream?.destroy();
    fail(pages.noAnswer);
    return;
  }
  watched.attach(stream);
  const headers = [
    ...requestHeaders(incoming, parts.wholeAddressOf(incoming)),
    'Connection',
    'Upgrade',
    'Upgrade',
    'websocket',
  ];
  const asked = request({ method: 'GET', path: incoming.url, headers, createConnection: () => stream });
  const timer = setTimeout(() => {
    fail(pages.tooSlow);
    asked.destroy();
  }, parts.firstByteMs);
  socket.once('close', () => {
    clearTimeout(timer);
    asked.destroy();
    stream.destroy();
  });
  asked.on('upgrade', (response, app, appHead) => {
    clearTimeout(timer);
    const lines = linesOf([...responseHeaders(response), 'Connection', 'Upgrade', 'Upgrade', 'websocket']);
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines}\r\n`, 'latin1');
    if (appHead.length > 0) socket.write(appHead);
    if (head.length > 0) app.write(head);
    app.on('error', () => socket.destroy());
    app.once('close', () => socket.destroy());
    app.pipe(socket);
    socket.pipe(app);
  });
  asked.on('response', (response) => {
    clearTimeout(timer);
    const lines = linesOf([...responseHeaders(response), 'Connection', 'close']);
    socket.write(`HTTP/1.1 ${response.statusCode ?? 502} \r\n${lines}\r\n`, 'latin1');
    response.on('error', () => socket.destroy());
    response.pipe(socket);
  });
  asked.on('error', () => fail(pages.noAnswer));
  asked.end();
}

const linesOf = (flat: readonly string[]): string => {
  const lines: string[] = [];
  for (let index = 0; index < flat.length; index += 2) lines.push(`${flat[index]}: ${flat[index + 1]}\r\n`);
  return lines.join('');
};
