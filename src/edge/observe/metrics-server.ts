import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { MetricsConfig } from '#base/config/config.ts';
import type { Metrics } from '#base/metrics/metrics.ts';
import { closeServer, guardConnections, listen, type ListenAddress, unfinishedMax, urlOf } from '#base/net/net.ts';
import type { EngineScrape } from './engine-scrape.ts';
import { type Health, healthAnswer, healthPaths } from './health.ts';

/** The listener for monitoring: metrics and health until the end of a shutdown, over plain HTTP without keys. */
export interface MetricsServer {
  /** Null if the server does not listen. */
  url(): string | null;
  /** @throws ConfigError naming HEADGATE_METRICS_PORT or HEADGATE_METRICS_HOST */
  listen(): Promise<void>;
  close(): Promise<void>;
}

export interface MetricsServerParts {
  readonly address: MetricsConfig;
  /** Milliseconds after which a client that reads nothing of its answer is disconnected. */
  readonly answerStallTimeoutMs: number;
  readonly metrics: Metrics;
  readonly engineScrape: EngineScrape;
  readonly health: Health;
  /** Called before metrics are read. */
  readonly refresh: () => void;
}

/** Most connections: only a few monitoring programs connect. */
const connectionsMax = 100;

const metricsPaths = ['/metrics', '/metrics/engines'];

/** Returns the address of the metrics server; null if it is off. */
export function metricsAddress({ host, port }: MetricsConfig): ListenAddress | null {
  if (port === null) return null;
  const variables = { hostVariable: 'HEADGATE_METRICS_HOST', portVariable: 'HEADGATE_METRICS_PORT' };
  return { host, port, ...variables, exclusive: true };
}

export function createMetricsServer(parts: MetricsServerParts): MetricsServer {
  const address = metricsAddress(parts.address);
  const server = createServer();
  const connections = guardConnections(server, {
    connectionsMax,
    stallMs: parts.answerStallTimeoutMs,
    refuse: refuseSurplus,
  });
  server.on('request', (incoming, outgoing) => {
    if (connections.accept(incoming, outgoing)) void answer(parts, incoming, outgoing);
  });
  return {
    url: () => (address === null ? null : urlOf(server, address)),
    listen: () => (address === null ? Promise.resolve() : listen(server, address)),
    async close() {
      const closed = closeServer(server);
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(parts: MetricsServerParts, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const path = incoming.url?.split('?', 1)[0] ?? '';
  const isRead = incoming.method === 'GET' || incoming.method === 'HEAD';
  if (!metricsPaths.includes(path) && !healthPaths.includes(path))
    send(outgoing, 404, 'Path not found. Use /metrics, /metrics/engines, /healthz or /readyz.\n');
  else if (!isRead) send(outgoing.setHeader('allow', 'GET, HEAD'), 405, 'Method not allowed. Use GET or HEAD.\n');
  else if (path === '/metrics') await sendMetrics(parts, outgoing);
  else if (path === '/metrics/engines') await sendEngineMetrics(parts, outgoing);
  else {
    const { status, body } = healthAnswer(parts.health, path);
    send(outgoing.setHeader('content-type', 'application/json'), status, JSON.stringify(body));
  }
}

function refuseSurplus(outgoing: ServerResponse): void {
  const text = `A connection may have at most ${unfinishedMax} unfinished requests. Read their responses first.\n`;
  send(outgoing.setHeader('connection', 'close'), 503, text);
}

async function sendMetrics({ metrics, refresh }: MetricsServerParts, outgoing: ServerResponse): Promise<void> {
  refresh();
  const text = await metrics.text();
  send(outgoing.setHeader('content-type', metrics.contentType), 200, text);
}

async function sendEngineMetrics(
  { metrics, engineScrape }: MetricsServerParts,
  outgoing: ServerResponse,
): Promise<void> {
  const text = await engineScrape.text();
  send(outgoing.setHeader('content-type', metrics.contentType), 200, text);
}

/** Sends a text. For HEAD, Node omits the body by itself. */
function send(outgoing: ServerResponse, status: number, text: string): void {
  if (!outgoing.hasHeader('content-type')) outgoing.setHeader('content-type', 'text/plain; charset=utf-8');
  outgoing.writeHead(status, { 'content-length': Buffer.byteLength(text), 'cache-control': 'no-store' }).end(text);
}
