import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { descriptorsMax } from '#base/descriptors.ts';
import type { Log } from '#base/log.ts';
import { closeServer, type Connections, guardConnections, listen, type ListenAddress, urlOf } from '#base/net/net.ts';
import type { Exposure, Exposures, Holder } from '#core/web-addresses/web-addresses.ts';
import { type GateParts, guessed, type KeyFinder, pass, type Passage } from './gate.ts';
import { createGuesses } from './guesses.ts';
import { cookieName, pairsOf } from './headers.ts';
import { LiveConnections } from './live.ts';
import { answer, closingHeader, type Page, pages } from './pages.ts';
import { refuseUpgrade, type RelayParts, relayRequest, relayUpgrade } from './relay.ts';

/**
 * Serves the web addresses of ports that runs have opened on clusters, on its own listener without the API. A proxy in
 * front of it has the certificates, and asks here before it requests a certificate for a name.
 */

export type { KeyFinder } from './gate.ts';

export interface WebConfig {
  readonly host: string;
  readonly port: number;
}

export interface Web {
  /** @throws ConfigError naming HEADGATE_WEB_PORT or HEADGATE_WEB_HOST */
  listen(): Promise<void>;
  url(): string;
  /** Ends connections to an address. */
  cut(exposure: Exposure): void;
  /** Ends connections of these holders. */
  cutHeldBy(isMeant: (holder: Holder) => boolean): void;
  /** Ids of sessions that hold open connections. */
  sessionIds(): readonly string[];
  /** Ends connections of holders who lost their access. @throws errors of the stores */
  closeUnauthorized(): Promise<void>;
  /** Accepts no more requests, waits up to 5 seconds for short requests, and ends the rest at once. */
  close(): Promise<void>;
}

export interface WebOptions
  extends Omit<RelayParts, 'live' | 'exposures'>, Pick<GateParts, 'wrongEntrances' | 'addressOf'> {
  readonly address: WebConfig;
  readonly exposures: Exposures;
  readonly keys: KeyFinder;
  readonly headersTimeoutMs: number;
  readonly answerStallTimeoutMs: number;
  readonly log: Log;
}

/** Path at which the proxy asks whether it may request a certificate. */
const askPath = '/internal/tls/ask';
const headerBytesMax = 32 * 1024;
/** Most connections per address: websockets stay open as long as somebody views a page. */
const connectionsPerAddress = 256;
/** Share of this process's file descriptors. Each connection has a second one to its application. */
const descriptorShare = 0.2;
const keepAliveMs = 120_000;
const connectionsCheckMs = 1000;
/** Answers to requests that Node cannot read, by Node's error code. */
const lateHead = 'ERR_HTTP_REQUEST_TIMEOUT';
const clientErrors: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  [lateHead]: '408 Request Timeout',
};
const failures = {
  request: 'a request to the web address of a run failed in the gateway; the visitor got an error page',
  websocket: 'a websocket to the web address of a run failed in the gateway and was closed',
};
const closeWaitMs = 5000;
const closePollMs = 50;

export function addressOfWeb({ host, port }: WebConfig): ListenAddress {
  return { host, port, hostVariable: 'HEADGATE_WEB_HOST', portVariable: 'HEADGATE_WEB_PORT' };
}

export function createWeb(options: WebOptions): Web {
  const { address, exposures, log } = options;
  const connectionsMax = Math.floor(descriptorsMax() * descriptorShare);
  const live = new LiveConnections({ perAddressMax: connectionsPerAddress, totalMax: connectionsMax });
  const parts = { ...options, live };
  const { server, connections } = openServer(options, connectionsMax);
  const gate = { ...options, guesses: createGuesses(options.clock) };
  const passNow = (incoming: IncomingMessage): Promise<Passage> => passUncut(incoming, gate, live);

  async function serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    if (isAsk(incoming, exposures)) {
      answerAsk(incoming, outgoing, exposures);
      return;
    }
    const passage = await passNow(incoming);
    if (passage.kind === 'refused') answer(incoming, outgoing, passage.page);
    else if (passage.kind === 'door') showDoor(incoming, outgoing, passage.exposure);
    else if (passage.kind === 'enter') await enter(incoming, outgoing, { ...options, ...passage });
    else await relayRequest(incoming, outgoing, passage, parts);
  }

  async function upgrade(incoming: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const refuse = (page: Page): void => refuseUpgrade(incoming, socket, page);
    if (!isWebsocket(incoming)) {
      refuse(pages.badRequest);
      return;
    }
    const passage = await passNow(incoming);
    if (passage.kind === 'refused') refuse(passage.page);
    else if (passage.kind === 'open') await relayUpgrade({ incoming, socket, head }, passage, parts);
    else refuse(pages.badRequest);
  }

  server.on('request', (incoming, outgoing) => {
    if (!connections.accept(incoming, outgoing)) return;
    incoming.on('error', () => undefined);
    serve(incoming, outgoing).catch((error: unknown) => {
      log.warn({ err: error, host: incoming.headers.host }, failures.request);
      answer(incoming, outgoing, pages.notYet);
    });
  });
  server.on('upgrade', (incoming, socket, head) => {
    socket.on('error', () => socket.destroy());
    connections.upgraded(socket);
    if (socket instanceof Socket) socket.setTimeout(0).setKeepAlive(true, keepAliveMs);
    upgrade(incoming, socket, head).catch((error: unknown) => {
      log.warn({ err: error, host: incoming.headers.host }, failures.websocket);
      socket.destroy();
    });
  });
  return {
    listen: () => listen(server, addressOfWeb(address)),
    url: () => urlOf(server, address),
    cut: (exposure) => live.cut(exposure),
    cutHeldBy: (isMeant) => live.cutHeldBy(isMeant),
    sessionIds: () => [
      ...new Set(live.held().flatMap(({ holder: { sessionId } }) => (sessionId === null ? [] : [sessionId]))),
    ],
    closeUnauthorized: () => closeUnauthorized(live, exposures),
    async close() {
      const closed = closeServer(server);
      server.closeIdleConnections();
      for (let waitedMs = 0; live.short > 0 && waitedMs < closeWaitMs; waitedMs += closePollMs)
        await sleep(closePollMs);
      live.cutAll();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Decides again if connections were cut meanwhile, because the cut did not find this request's connection. */
async function passUncut(incoming: IncomingMessage, parts: GateParts, live: LiveConnections): Promise<Passage> {
  for (;;) {
    const { changes } = live;
    const passage = await pass(incoming, parts);
    if (changes === live.changes) return passage;
  }
}

async function closeUnauthorized(live: LiveConnections, exposures: Pick<Exposures, 'mayStay'>): Promise<void> {
  for (const { exposure, holder } of live.held()) {
    if (await exposures.mayStay(exposure, holder)) continue;
    live.cutHeldBy((other) => JSON.stringify(other) === JSON.stringify(holder));
  }
}

/** Opens the server with its own limits: requests to applications take nothing from the API's. */
function openServer(
  options: WebOptions,
  connectionsMax: number,
): { readonly server: Server; readonly connections: Connections } {
  const server = createServer({
    maxHeaderSize: headerBytesMax,
    headersTimeout: options.headersTimeoutMs,
    // Bodies have a limit for the time between two parts.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: connectionsCheckMs,
    noDelay: true,
    requireHostHeader: false,
    insecureHTTPParser: false,
  });
  const connections = guardConnections(server, {
    connectionsMax,
    stallMs: options.answerStallTimeoutMs,
    refuse: (outgoing) => answer(outgoing.req, outgoing, pages.tooMany),
  });
  server.on('clientError', ({ code = '' }: NodeJS.ErrnoException, socket) => {
    // Complete headers that are not read yet are not late.
    if (code === lateHead) connections.unlessAsked(socket, () => refuseClient(socket, code));
    else refuseClient(socket, code);
  });
  return { server, connections };
}

function refuseClient(socket: Duplex, code: string): void {
  const status = clientErrors[code] ?? '400 Bad Request';
  if (socket.writable) socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
  else socket.destroy();
}

/** True for a GET request without a body that upgrades to a websocket. */
function isWebsocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'content-length': length, 'transfer-encoding': encoding } = headers;
  const isBodiless = (length === undefined || length === '0') && encoding === undefined;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && isBodiless;
}

/**
 * True if the proxy itself asks about a certificate. Requests that the proxy passes on have headers that it adds, so
 * its clients cannot ask, whatever Host they send, and an application can use this path itself.
 */
function isAsk(incoming: IncomingMessage, exposures: Pick<Exposures, 'find'>): boolean {
  const { url = '', headers, rawHeaders, method } = incoming;
  if (method !== 'GET' || (url !== askPath && !url.startsWith(`${askPath}?`))) return false;
  for (const [name] of pairsOf(rawHeaders)) {
    if (name.toLowerCase().startsWith('x-forwarded-') || name.toLowerCase() === 'via') return false;
  }
  return exposures.find((headers.host ?? '').toLowerCase().replace(/:\d+$/, '')) === null;
}

/** Answers 200 for a live name, 404 for anything else. */
function answerAsk(incoming: IncomingMessage, outgoing: ServerResponse, exposures: Pick<Exposures, 'find'>): void {
  const names = new URLSearchParams((incoming.url ?? '').split('?', 2)[1]).getAll('domain');
  const isLive = names.length === 1 && exposures.find(names[0] ?? '') !== null;
  outgoing.writeHead(isLive ? 200 : 404, { 'cache-control': 'no-store', 'content-length': 0 });
  outgoing.end();
}

const enteringHeaders = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer', 'content-length': 0 };

/** Shows the page of an unused link. Public applications need no link, so it redirects to the application. */
function showDoor(incoming: IncomingMessage, outgoing: ServerResponse, { access, path }: Exposure): void {
  if (access === 'members') answer(incoming, outgoing, pages.door);
  else outgoing.writeHead(303, { ...enteringHeaders, location: path, ...closingHeader(incoming) }).end();
}

async function enter(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  { exposure, link, exposures, clock, ...parts }: WebOptions & { readonly exposure: Exposure; readonly link: string },
): Promise<void> {
  const headers = { ...enteringHeaders, location: exposure.path, ...closingHeader(incoming) };
  if (exposure.access === 'public') {
    outgoing.writeHead(303, headers).end();
    return;
  }
  const entrance = await exposures.enter(exposure, link);
  if (entrance === null) {
    answer(incoming, outgoing, await guessed(incoming, parts, pages.badLink));
    return;
  }
  const seconds = Math.max(0, Math.floor((entrance.expiresAtMs - clock.now()) / 1000));
  const cookie = `${cookieName}=${entrance.secret}; Path=/; Max-Age=${seconds}; Secure; HttpOnly; SameSite=Lax`;
  outgoing.writeHead(303, { ...headers, 'set-cookie': cookie }).end();
}
