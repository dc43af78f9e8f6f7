import { createServer, request } from 'node:http';
import { type AddressInfo, createServer as createSocketServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { proxyServer } from '#core/runs/runner/keeper-proxy.ts';

const said = new Map([
  ['/upgraded', 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n'],
  ['/closed', ''],
]);
let upstream: Server;
let proxy: Server;

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

beforeAll(async () => {
  upstream = createServer();
  upstream.on('connection', (socket) => socket.on('error', () => undefined));
  upstream.on('request', (asked, answer) => answer.socket?.end(said.get(asked.url ?? '') ?? ''));
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  const nodes = [{ address: '127.0.0.1', sshPort: portOf(upstream) }];
  proxy = createSocketServer(proxyServer({ port: 0, nodes, publicPorts: [] }));
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
});

afterAll(() => {
  upstream.close();
  proxy.close();
});

const ask = (path: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const url = `http://127.0.0.1:${portOf(upstream)}${path}`;
    request({ host: '127.0.0.1', port: portOf(proxy), path: url, agent: false })
      .on('response', (response) => resolve(response.resume().statusCode ?? 0))
      .on('error', reject)
      .end();
  });

describe('the proxy of a run', () => {
  it.each([...said.keys()])('answers 502 where what it asks gives no answer: %s', async (path) => {
    expect(await ask(path)).toBe(502);
  });
});
