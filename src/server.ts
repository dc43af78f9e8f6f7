import { createServer, type Server } from 'node:http';
import { createServer as createSocketServer, type Server as SocketServer } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Hono } from 'hono';
import { ConfigError, type Config } from '#base/config.ts';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { handleClientError, type HttpEnv } from '#edge/http/http.ts';

/** The port of the gateway. */
export interface HttpServer {
  /**
   * Takes the address; requests that come already wait for `open`.
   * @throws ConfigError naming PORT or HOST when that cannot be done
   */
  listen(): Promise<void>;
  /** From now on requests are served. */
  open(): void;
  /** `http://host:port`, with the port that was really taken. */
  url(): string;
  /** Takes no more connections; resolves when the last one has ended. */
  close(): Promise<void>;
  /** Ends every connection, whatever is under way on it. */
  cut(): void;
}

const keepAliveTimeoutMs = 75_000;
const connectionsCheckMs = 1000;
const backlog = 4096;

export function createHttpServer(config: Config, app: Hono<HttpEnv>): HttpServer {
  const opened = Promise.withResolvers<void>();
  const listener = listenerOf(app);
  const server = createServer({
    headersTimeout: config.headersTimeoutMs,
    // A body has its own limit between two of its parts; a long upload is no fault.
    requestTimeout: 0,
    keepAliveTimeout: keepAliveTimeoutMs,
    connectionsCheckingInterval: connectionsCheckMs,
    noDelay: true,
  });
  const wait = (...call: Parameters<typeof listener>): void => void opened.promise.then(() => listener(...call));
  server.on('request', wait);
  server.on('clientError', handleClientError);
  return {
    listen: () => listen(server, config),
    open() {
      server.off('request', wait);
      server.on('request', (incoming, outgoing) => void listener(incoming, outgoing));
      opened.resolve();
    },
    url: () => urlOf(server, config),
    close: () => closeServer(server),
    cut: () => server.closeAllConnections(),
  };
}

function listenerOf(app: Hono<HttpEnv>): ReturnType<typeof getRequestListener> {
  const refused = JSON.stringify(errorEnvelope(new AppError('invalid_request_error')));
  return getRequestListener(app.fetch, {
    overrideGlobalObjects: false,
    autoCleanupIncoming: false,
    errorHandler: () => new Response(refused, { status: 400, headers: { 'content-type': 'application/json' } }),
  });
}

/**
 * Takes the address and gives it back, to find out before anything is made whether it can be had.
 * @throws ConfigError naming PORT or HOST when it cannot
 */
export async function checkAddress(config: Config): Promise<void> {
  const server = createSocketServer();
  await listen(server, config);
  await closeServer(server);
}

function listen(server: SocketServer, { host, port }: Config): Promise<void> {
  return new Promise((resolve, reject) => {
    const refuse = (error: NodeJS.ErrnoException): void => {
      if (error.code === 'EADDRINUSE') reject(new ConfigError(`PORT: ${port} is taken on ${host}; set another one.`));
      else if (error.code === 'EACCES') reject(new ConfigError(`PORT: ${port} may not be opened by this user.`));
      else reject(new ConfigError(`HOST: cannot listen on ${host} (${error.code ?? 'unknown error'}).`));
    };
    server.once('error', refuse);
    server.listen({ host, port, backlog }, () => {
      server.off('error', refuse);
      resolve();
    });
  });
}

function closeServer(server: SocketServer): Promise<void> {
  return new Promise((resolve) => {
    if (server.listening) server.close(() => resolve());
    else resolve();
  });
}

function urlOf(server: Server, { host, port }: Config): string {
  const address = server.address();
  const taken = typeof address === 'object' && address !== null ? address.port : port;
  return `http://${host.includes(':') ? `[${host}]` : host}:${taken}`;
}
