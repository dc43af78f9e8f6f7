import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { randomOf } from '#test/random.ts';
import { FaultProxy } from './fault-proxy.ts';

/** A server that answers every piece with itself, and a proxy before it. */

let server: Server;
let proxy: FaultProxy;
const clients: Socket[] = [];

beforeEach(async () => {
  server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => socket.write(bytes));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  proxy = await new FaultProxy({ port, random: randomOf(1, 'test') }).listen();
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await proxy.close();
  server.close();
});

interface Client {
  readonly socket: Socket;
  heard(): string;
  closed: Promise<string>;
}

async function open(): Promise<Client> {
  const socket = connect(proxy.port, '127.0.0.1');
  clients.push(socket);
  let text = '';
  socket.on('data', (bytes: Buffer) => (text += bytes.toString()));
  const closed = new Promise<string>((resolve) => {
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    socket.on('close', () => resolve('closed'));
  });
  await Promise.race([once(socket, 'connect'), closed]);
  return { socket, heard: () => text, closed };
}

/** Returns the client's received bytes once there are so many. */
async function heard(client: Client, length: number): Promise<string> {
  await expect.poll(() => client.heard().length).toBeGreaterThanOrEqual(length);
  return client.heard();
}

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));

describe('the fault proxy', () => {
  it('forwards both directions, and the end of each', async () => {
    const client = await open();
    client.socket.write('a');
    expect(await heard(client, 1)).toBe('a');
    client.socket.end();
    expect(await client.closed).toBe('closed');
  });

  it('breaks connections and refuses new ones until it is restored at the same port', async () => {
    const { port } = proxy;
    const client = await open();
    proxy.takeAway('refused');
    expect(await client.closed).toBe('ECONNRESET');
    expect(await (await open()).closed).toBe('ECONNREFUSED');
    await proxy.restore();
    expect(proxy.port).toBe(port);
    const again = await open();
    again.socket.write('b');
    expect(await heard(again, 1)).toBe('b');
  });

  it('accepts new connections and closes them', async () => {
    proxy.takeAway('closed');
    expect(await (await open()).closed).toBe('closed');
  });

  it('holds everything back, and delivers it late', async () => {
    const client = await open();
    proxy.silence('all');
    client.socket.write('late');
    const other = await open();
    other.socket.write('too');
    await pause();
    expect([client.heard(), other.heard()]).toEqual(['', '']);
    await proxy.restore();
    expect(await heard(client, 4)).toBe('late');
    expect(await heard(other, 3)).toBe('too');
  });

  it('silences existing connections, and no new ones', async () => {
    const client = await open();
    proxy.silence('existing');
    client.socket.write('never');
    const other = await open();
    other.socket.write('new');
    expect(await heard(other, 3)).toBe('new');
    expect(client.heard()).toBe('');
  });

  it('drops one direction permanently', async () => {
    const client = await open();
    proxy.swallow('to-client');
    client.socket.write('lost ');
    await pause();
    await proxy.restore();
    client.socket.write('kept');
    expect(await heard(client, 4)).toBe('kept');
  });

  it('delays data, and keeps its order within a connection', async () => {
    const client = await open();
    proxy.delay('to-server', { ms: 1, jitterMs: 20 });
    const letters = 'abcdefghij'.split('');
    for (const letter of letters) {
      client.socket.write(letter);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await heard(client, letters.length)).toBe(letters.join(''));
  });

  it('connects to another server', async () => {
    const other = createServer((socket) => void socket.end('other'));
    await once(other.listen(0, '127.0.0.1'), 'listening');
    proxy.pointTo((other.address() as AddressInfo).port);
    expect(await heard(await open(), 5)).toBe('other');
    other.close();
  });
});
