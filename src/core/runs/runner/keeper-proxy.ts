import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { internet, isPublicAddress, literalAddress } from '#base/outbound.ts';
import type { ProxyRules } from './keeper-plan.ts';

/**
 * The HTTP proxy of a run, which programs find in their environment: it reaches the nodes and, where it may, addresses of
 * the internet at large. Never this machine, a private network, or what clouds tell a machine under link-local addresses.
 */
export function proxyServer(rules: ProxyRules): (socket: Socket) => void {
  const server = createServer((asked, answer) => void forward(rules, asked, answer));
  server.on('connect', (asked: IncomingMessage, socket: Socket, head: Buffer) => {
    void tunnel(rules, asked.url ?? '', socket, head);
  });
  return (socket) => server.emit('connection', socket);
}

/** Passes on what two ends say, until both have ended. */
export function join(one: Socket, other: Socket): void {
  one.on('error', () => other.destroy()).on('close', () => other.destroy());
  other.on('error', () => one.destroy()).on('close', () => one.destroy());
  one.pipe(other);
  other.pipe(one);
}

const refusal = 'this run does not reach that host and port';

async function tunnel(rules: ProxyRules, authority: string, socket: Socket, head: Buffer): Promise<void> {
  socket.on('error', () => socket.destroy());
  const [, host = '', port = ''] = /^(.+):(\d{1,5})$/.exec(authority) ?? [];
  const address = await allowed(rules, host, Number(port));
  if (address === null) {
    socket.end(`HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n${refusal}\n`);
    return;
  }
  const upstream = connect({ host: address, port: Number(port) });
  upstream.once('connect', () => {
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    upstream.write(head);
    join(socket, upstream);
  });
  upstream.once('error', () => socket.end('HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n'));
}

/** Of one connection to its proxy. */
const hopByHop = new Set(['connection', 'proxy-connection', 'proxy-authorization', 'keep-alive', 'upgrade']);

async function forward(rules: ProxyRules, asked: IncomingMessage, answer: ServerResponse): Promise<void> {
  const url = URL.parse(asked.url ?? '');
  const port = Number(url?.port === '' ? 80 : url?.port);
  const address = url?.protocol === 'http:' ? await allowed(rules, url.hostname, port) : null;
  if (url === null || address === null) {
    answer.writeHead(403, { 'content-type': 'text/plain' }).end(`${refusal}\n`);
    return;
  }
  const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !hopByHop.has(name)));
  const path = `${url.pathname}${url.search}`;
  const upstream = request({ host: address, port, path, headers, ...(asked.method && { method: asked.method }) });
  upstream.on('response', (response) => {
    answer.writeHead(response.statusCode ?? 502, response.headers);
    response.pipe(answer);
  });
  const fail = (): void => void (answer.headersSent ? answer.destroy() : answer.writeHead(502).end());
  // Of an answer that changes the protocol Node.js tells nothing else: no response, and no error.
  upstream.on('error', fail).on('close', () => answer.headersSent || fail());
  answer.on('close', () => upstream.destroy());
  asked.pipe(upstream);
}

/** @returns the address to connect to: the very one that was looked at */
async function allowed({ nodes, publicPorts }: ProxyRules, hostname: string, port: number): Promise<string | null> {
  const literal = literalAddress(hostname);
  const host = literal ?? hostname.toLowerCase();
  if (!(port >= 1 && port <= 65_535)) return null;
  const addresses = literal === null ? await internet.resolve(host).catch(() => []) : [literal];
  const own = ownAddresses();
  const ofNode = nodes.filter(({ address }) => address.toLowerCase() === host);
  if (ofNode.length > 0) {
    // Of a node that is this very machine nothing but its SSH server: others of its ports are the gateway's and its stores'.
    const isSsh = ofNode.some(({ sshPort }) => sshPort === port);
    return addresses.find((address) => isSsh || !isOfMachine(address, own)) ?? null;
  }
  if (publicPorts !== 'all' && !publicPorts.includes(port)) return null;
  return addresses.find((address) => isPublicAddress(address) && !own.has(address)) ?? null;
}

const isOfMachine = (address: string, own: ReadonlySet<string>): boolean =>
  own.has(address) || /^(?:127\.|0\.|169\.254\.|::|fe[89ab])/i.test(address);

function ownAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => address));
}
