import { createServer, request } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { type AddressInfo, connect, createServer as createSocketServer, type Server } from 'node:net';
import os from 'node:os';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
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
  it.each([...said.keys()])('returns 502 when the upstream gives no usable answer: %s', async (path) => {
    expect(await ask(path)).toBe(502);
  });

  it.each(['forwards', 'tunnels'])('%s to another address of a host when the first one is silent', async (how) => {
    const dialed: string[] = [];
    const answering = createServer((_, answer) => answer.writeHead(204).end());
    await new Promise<void>((resolve) => answering.listen(0, '127.0.0.1', resolve));
    const outbound = {
      resolve: () => Promise.resolve(['93.184.215.66', '10.0.0.5', '93.184.215.14']),
      dial(address: string) {
        dialed.push(address);
        if (address === '93.184.215.14') return connect(portOf(answering), '127.0.0.1');
        return connect({ host: 'silent.example', port: 1, lookup: () => undefined });
      },
    };
    const served = createSocketServer(proxyServer({ port: 0, nodes: [], publicPorts: [80] }, outbound));
    await new Promise<void>((resolve) => served.listen(0, '127.0.0.1', resolve));
    const status = await new Promise((resolve, reject) => {
      const to = { host: '127.0.0.1', port: portOf(served), agent: false };
      const asking =
        how === 'forwards'
          ? request({ ...to, path: 'http://two.example/' })
          : request({ ...to, method: 'CONNECT', path: 'two.example:80' });
      asking.on('response', (response) => resolve(response.resume().statusCode));
      asking.on('connect', (response, socket) => {
        socket.destroy();
        resolve(response.statusCode);
      });
      asking.on('error', reject).end();
    });
    expect([status, dialed]).toEqual([how === 'forwards' ? 204 : 200, ['93.184.215.66', '93.184.215.14']]);
    answering.close();
    served.close();
  });

  describe('on a machine with public addresses', () => {
    afterEach(() => {
      vi.restoreAllMocks();
      syncBuiltinESMExports();
    });

    it.each(['93.184.215.14', '[::ffff:93.184.215.14]', '[2a01:4f8:0:0::1]', '[2A01:4F8::1]', '[2a01:4f8::1%1]'])(
      'returns 403 for an address of the machine in any notation: %s',
      async (host) => {
        const own = (address: string) => ({ address }) as os.NetworkInterfaceInfo;
        vi.spyOn(os, 'networkInterfaces').mockReturnValue({ eth0: [own('93.184.215.14'), own('2a01:4f8::1')] });
        syncBuiltinESMExports();
        const dialed: string[] = [];
        const dial = (address: string) => {
          dialed.push(address);
          return connect(1, '127.0.0.1');
        };
        const outbound = { resolve: () => Promise.resolve([]), dial };
        const served = createSocketServer(proxyServer({ port: 0, nodes: [], publicPorts: 'all' }, outbound));
        await new Promise<void>((resolve) => served.listen(0, '127.0.0.1', resolve));
        const status = await new Promise((resolve, reject) => {
          request({ host: '127.0.0.1', port: portOf(served), agent: false, method: 'CONNECT', path: `${host}:443` })
            .on('connect', ({ statusCode }, socket) => {
              socket.destroy();
              resolve(statusCode);
            })
            .on('error', reject)
            .end();
        });
        expect([status, dialed]).toEqual([403, []]);
        served.close();
      },
    );
  });
});
