import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { dialFirst, internet, isPublicAddress, literalAddress, type Outbound, plainAddress } from '#base/net/net.ts';
import type { ProxyRules } from './keeper-plan.ts';

/**
 * Creates the HTTP proxy of a run, which programs find in their environment. It reaches the nodes and, where allowed,
 * public addresses. It never reaches this machine, a private network, or the link-local addresses of clouds' metadata.
 */
export function proxyServer(rules: ProxyRules, outbound: Outbound = internet): (socket: Socket) => void {
  const reach: Reach = { rules, outbound };
  const server = createServer((asked, answer) => void forward(reach, asked, answer));
  server.on('connect', (asked: IncomingMessage, socket: Socket, head: Buffer) => {
    void tunnel(reach, asked.url ?? '', socket, head);
  });
  return (socket) => server.emit('connection', socket);
}

/** Pipes two sockets into each other, until both have ended. */
export function join(one: Socket, other: Socket): void {
  one.on('error', () => other.destroy()).on('close', () => other.destroy());
  other.on('error', () => one.destroy()).on('close', () => one.destroy());
  one.pipe(other);
  other.pipe(one);
}

const refusal = 'this run may not connect to this host and port';

interface Reach {
  readonly rules: ProxyRules;
  readonly outbound: Outbound;
}

/** Aborts when the connection closes, so that lookups and connections for it are abandoned. */
function abortOnClose(end: Socket | ServerResponse): AbortSignal {
  const controller = new AbortController();
  end.once('close', () => controller.abort());
  return controller.signal;
}

async function tunnel(reach: Reach, authority: string, socket: Socket, head: Buffer): Promise<void> {
  socket.on('error', () => socket.destroy());
  const closed = abortOnClose(socket);
  const [, host = '', port = ''] = /^(.+):(\d{1,5})$/.exec(authority) ?? [];
  const addresses = await allowed(reach, host, Number(port), closed);
  if (addresses.length === 0) {
    socket.end(`HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n${refusal}\n`);
    return;
  }
  const upstream = await dialFirst(reach.outbound, addresses, Number(port), closed).catch(() => null);
  if (upstream === null) {
    socket.end('HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n');
    return;
  }
  socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
  upstream.write(head);
  join(socket, upstream);
}

/** Headers that concern only the client's connection to the proxy. */
const hopByHop = new Set(['connection', 'proxy-connection', 'proxy-authorization', 'keep-alive', 'upgrade']);

async function forward(reach: Reach, asked: IncomingMessage, answer: ServerResponse): Promise<void> {
  const url = URL.parse(asked.url ?? '');
  const port = Number(url?.port === '' ? 80 : url?.port);
  const closed = abortOnClose(answer);
  const addresses = url?.protocol === 'http:' ? await allowed(reach, url.hostname, port, closed) : [];
  if (url === null || addresses.length === 0) {
    answer.writeHead(403, { 'content-type': 'text/plain' }).end(`${refusal}\n`);
    return;
  }
  const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !hopByHop.has(name)));
  const path = `${url.pathname}${url.search}`;
  const socket = await dialFirst(reach.outbound, addresses, port, closed).catch(() => null);
  if (socket === null) {
    answer.writeHead(502).end();
    return;
  }
  // Any agent, even `false`, would open its own connection.
  const createConnection = (): Socket => socket;
  const upstream = request({ createConnection, path, headers, ...(asked.method && { method: asked.method }) });
  upstream.on('response', (response) => {
    answer.writeHead(response.statusCode ?? 502, response.headers);
    response.pipe(answer);
  });
  const fail = (): void => void (answer.headersSent ? answer.destroy() : answer.writeHead(502).end());
  // After a response that switches protocols, Node.js emits only `close`: no response, and no error.
  upstream.on('error', fail).on('close', () => answer.headersSent || fail());
  answer.on('close', () => upstream.destroy());
  asked.pipe(upstream);
}

/** @returns the addresses to connect to, exactly those that were checked; none if the target is not allowed */
async function allowed(
  { rules: { nodes, publicPorts }, outbound }: Reach,
  hostname: string,
  port: number,
  gone: AbortSignal,
): Promise<readonly string[]> {
  const literal = literalAddress(hostname);
  const host = literal ?? hostname.toLowerCase();
  if (!(port >= 1 && port <= 65_535)) return [];
  const addresses = literal === null ? await outbound.resolve(host, gone).catch(() => []) : [literal];
  const own = ownAddresses();
  const ofNode = nodes.filter(({ address }) => address.toLowerCase() === host);
  if (ofNode.length > 0) {
    // On a node that is this machine, only its SSH server: other ports are the gateway's and its databases'.
    const isSsh = ofNode.some(({ sshPort }) => sshPort === port);
    return addresses.filter((address) => isSsh || !isOfMachine(address, own));
  }
  if (publicPorts !== 'all' && !publicPorts.includes(port)) return [];
  return addresses.filter((address) => isPublicAddress(address) && !own.has(plainAddress(address)));
}

function isOfMachine(text: string, own: ReadonlySet<string>): boolean {
  const address = plainAddress(text);
  return own.has(address) || /^(?:127\.|0\.|169\.254\.|::|fe[89ab])/.test(address);
}

function ownAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => plainAddress(address)));
}
