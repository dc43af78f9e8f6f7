import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSocketServer } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Hono } from 'hono';
import type { Config, HttpConfig, MetricsConfig } from '#base/config/config.ts';
import { descriptorsMax } from '#base/descriptors.ts';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import { closeServer, guardConnections, listen, type ListenAddress, urlOf } from '#base/net/net.ts';
import { createSlotList, type Slotted } from '#base/queues/queues.ts';
import {
  createCors,
  handleClientError,
  type HttpEnv,
  isAddressed,
  refuseExpectation,
  refuseSurplus,
  refuseUnaddressed,
} from '#edge/http/http.ts';
import type { Inference } from '#edge/inference/inference.ts';
import { healthPaths, metricsAddress } from '#edge/observe/observe.ts';
import { addressOfWeb } from '#edge/web-addresses/web-addresses.ts';

/** The HTTP listener of the gateway. */
export interface HttpServer {
  /**
   * Listens on the address; requests that arrive before `open` wait, except health checks.
   * @throws ConfigError naming PORT or HOST when the address cannot be used
   */
  listen(): Promise<void>;
  /** Serves requests from now on. */
  open(): void;
  /** Closes the connection after every answer from now on: clients open their next connection elsewhere. */
  drain(): void;
  /** Returns `http://host:port`, with the port in use. */
  url(): string;
  /** Accepts no more connections; resolves when the last connection has ended. */
  close(): Promise<void>;
  /** Ends every connection, with the requests on it. */
  cut(): void;
}

const keepAliveTimeoutMs = 75_000;
const connectionsCheckMs = 1000;
/** Share of the descriptors of this process for clients; the others are for engines, databases and files. */
const clientShare = 0.75;

/** @param busy answers its requests itself, without the walk through the routes and middlewares of the app */
export function createHttpServer(config: HttpConfig, app: Hono<HttpEnv>, busy: Pick<Inference, 'answers'>): HttpServer {
  const opened = Promise.withResolvers<void>();
  const listener = listenerOf(app);
  const cors = createCors(config.corsOrigins);
  const server = createServer({
    headersTimeout: config.headersTimeoutMs,
    // Bodies have a limit between two chunks instead; a long upload is valid.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveTimeoutMs,
    connectionsCheckingInterval: connectionsCheckMs,
    noDelay: true,
    // Rejected below, with the error envelope of the API.
    requireHostHeader: false,
  });
  const connections = guardConnections(server, {
    connectionsMax: Math.floor(descriptorsMax() * clientShare),
    stallMs: config.answerStallTimeoutMs,
    refuse: refuseSurplus,
  });
  const answers = new Answers();
  const answer = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    answers.begin(outgoing);
    if (!isAddressed(incoming)) refuseUnaddressed(incoming, outgoing);
    else if (!cors.answers(incoming, outgoing) && !busy.answers(incoming, outgoing)) void listener(incoming, outgoing);
  };
  const serve = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    if (connections.accept(incoming, outgoing)) answer(incoming, outgoing);
  };
  const wait = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    if (!connections.accept(incoming, outgoing)) return;
    if (asksHealth(incoming)) answer(incoming, outgoing);
    else void opened.promise.then(() => answer(incoming, outgoing));
  };
  server.on('request', wait);
  server.on('checkExpectation', (incoming, outgoing) => {
    if (connections.accept(incoming, outgoing)) refuseExpectation(incoming, outgoing);
  });
  server.on('clientError', (error, socket) => handleClientError(error, socket, connections));
  return {
    listen: () => listen(server, addressOf(config)),
    open() {
      server.off('request', wait);
      server.on('request', serve);
      opened.resolve();
    },
    drain: () => answers.drain(),
    url: () => urlOf(server, config),
    close: () => closeServer(server),
    cut: () => server.closeAllConnections(),
  };
}

/** Answers whose last byte is not yet sent. */
class Answers {
  readonly #open = createSlotList<OpenAnswer>();
  #isDraining = false;

  begin(outgoing: ServerResponse): void {
    if (this.#isDraining) outgoing.shouldKeepAlive = false;
    const answer = { slot: -1, outgoing };
    this.#open.add(answer);
    outgoing.on('close', () => this.#open.remove(answer));
  }

  drain(): void {
    this.#isDraining = true;
    this.#open.forEach(({ outgoing }) => {
      outgoing.shouldKeepAlive = false;
    });
  }
}

interface OpenAnswer extends Slotted {
  readonly outgoing: ServerResponse;
}

function listenerOf(app: Hono<HttpEnv>): ReturnType<typeof getRequestListener> {
  const message = 'The address of the request, or its Host header, is not valid.';
  const refused = JSON.stringify(errorEnvelope(new AppError('invalid_request_error', { message })));
  const headersOf = () => ({ 'content-type': 'application/json', 'x-request-id': uuidv7() });
  return getRequestListener(app.fetch, {
    overrideGlobalObjects: false,
    autoCleanupIncoming: false,
    // HTTP/1.0 needs no Host header, and health checks of load balancers send none.
    hostname: 'localhost',
    errorHandler: () => new Response(refused, { status: 400, headers: headersOf() }),
  });
}

/**
 * Listens on each address and closes it again, to check all addresses before anything is created.
 * @throws ConfigError naming the variable of an address that cannot be used
 */
export async function checkAddresses(config: Pick<Config, 'http' | 'metrics' | 'platform' | 'process'>): Promise<void> {
  const workers = Array.from({ length: config.process.workers }, (_, index) => index);
  const metrics = workers.map((worker) => metricsAddress(metricsOf(config.metrics, worker)));
  const { web } = config.platform;
  for (const address of [addressOf(config.http), web === null ? null : addressOfWeb(web), ...metrics]) {
    if (address === null) continue;
    const server = createSocketServer();
    await listen(server, address);
    await closeServer(server);
  }
}

/** Returns the metrics listener of a worker: each has its own port; port 0 means any free port. */
export function metricsOf({ host, port }: MetricsConfig, worker: number): MetricsConfig {
  return { host, port: port === null || port === 0 ? port : port + worker };
}

function addressOf({ host, port }: HttpConfig): ListenAddress {
  return { host, port, hostVariable: 'HOST', portVariable: 'PORT' };
}

/** True for health checks, which are answered at once, even while the gateway starts. */
function asksHealth({ url = '' }: IncomingMessage): boolean {
  return healthPaths.includes(url.split('?', 1)[0] ?? '');
}
