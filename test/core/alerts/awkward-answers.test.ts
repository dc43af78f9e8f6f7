import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { sendWebhook } from '#core/alerts/send.ts';

/** Odd answers of a receiver: each try ends, and nothing of it stays open. */

let stop: () => Promise<void> = () => Promise.resolve();

afterEach(() => stop());

/** Sends to a server that answers every request so, and reports the outcome. */
async function answered(said: string): Promise<unknown> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', () => void socket.write(said));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  stop = async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => void server.close(resolve));
  };
  const host = `127.0.0.1:${port}`;
  return sendWebhook(
    { url: `http://${host}/in`, headers: {}, body: '{}' },
    {
      allowedHosts: [host],
      timeoutMs: 300,
      outbound: {
        resolve: () => Promise.resolve([]),
        dial: (address, to) => connect(to, address),
      },
    },
  );
}

describe('a delivery attempt', () => {
  it.each([
    [
      'another protocol than was asked for',
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
      'unreachable',
    ],
    ['101 without a protocol', 'HTTP/1.1 101 Switching Protocols\r\n\r\n', 'status'],
    ['early hints and nothing more', 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'.repeat(50), 'timeout'],
    ['half of a status line', 'HTTP/1.1 2', 'timeout'],
    ['what is no HTTP', 'SSH-2.0-OpenSSH_9.6\r\n', 'unreachable'],
    ['more headers than are read', `HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(10_000)}\r\n`, 'unreachable'],
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab', 'unreachable'],
  ])('fails when its receiver answers %s', async (_, said, error) => {
    expect(await answered(said)).toMatchObject({ error });
  });

  it.each([
    ['that never ends', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n'],
    ['that is upgraded', 'HTTP/1.1 200 OK\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'],
  ])('takes the status of an answer with a body %s', async (_, said) => {
    expect(await answered(said)).toEqual({ status: 200, error: null, retryAfterMs: null });
  });
});
