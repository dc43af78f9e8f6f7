import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import type { Endpoint } from '#base/net/endpoint.ts';

/** One request as it came: its head, and its body by Content-Length. */
export interface SeenRequest {
  readonly head: string;
  readonly body: string;
  /** Counts connections from 1. */
  readonly connection: number;
  readonly socket: Socket;
}

export interface ByteServer {
  readonly endpoint: Endpoint;
  readonly requests: SeenRequest[];
  /** All connections ever taken, in order. */
  readonly sockets: Socket[];
  close(): Promise<void>;
}

export interface ByteServerOptions {
  transport: 'tcp' | 'unix' | { key: string; cert: string };
  answer: (request: SeenRequest) => void;
  onConnection?: (socket: Socket, connection: number) => void;
}

/** A server that answers whatever bytes the test says. */
export async function startByteServer(options: ByteServerOptions): Promise<ByteServer> {
  const requests: SeenRequest[] = [];
  const sockets: Socket[] = [];
  function serve(socket: Socket): void {
    sockets.push(socket);
    const connection = sockets.length;
    // Clients of these tests leave in all ways that there are.
    socket.on('error', () => undefined);
    options.onConnection?.(socket, connection);
    let pending = '';
    // Below this length it is not worth looking: long bodies come in many reads.
    let needed = 0;
    socket.on('data', (bytes: Buffer) => {
      pending += bytes.toString('latin1');
      if (pending.length < needed) return;
      for (let taken = takeRequest(pending); taken !== null; taken = takeRequest(pending)) {
        pending = pending.slice(taken.length);
        const request = { head: taken.head, body: taken.body, connection, socket };
        requests.push(request);
        options.answer(request);
      }
      needed = neededLength(pending);
    });
  }

  const { transport } = options;
  const server = typeof transport === 'string' ? createServer(serve) : createTlsServer(transport, serve);
  const folder = transport === 'unix' ? await mkdtemp(join(tmpdir(), 'headgate-proxy-')) : null;
  const socketPath = folder === null ? null : join(folder, 's');
  await listen(server, socketPath);
  const port = socketPath === null ? (server.address() as AddressInfo).port : 0;
  return {
    endpoint: { socketPath, host: '127.0.0.1', port, tls: typeof transport !== 'string', basePath: '' },
    requests,
    sockets,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      if (folder !== null) await rm(folder, { recursive: true, force: true });
    },
  };
}

function listen(server: Server, socketPath: string | null): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    if (socketPath === null) server.listen(0, '127.0.0.1', resolve);
    else server.listen(socketPath, resolve);
  });
}

function takeRequest(pending: string): { head: string; body: string; length: number } | null {
  const length = neededLength(pending);
  if (length === 0 || pending.length < length) return null;
  const headLength = pending.indexOf('\r\n\r\n') + 4;
  return { head: pending.slice(0, headLength), body: pending.slice(headLength, length), length };
}

/** Head and body together, 0 while the head is not whole. */
function neededLength(pending: string): number {
  const headEnd = pending.indexOf('\r\n\r\n');
  if (headEnd === -1) return 0;
  return headEnd + 4 + Number(/\r\ncontent-length: (\d+)/i.exec(pending.slice(0, headEnd + 4))?.[1] ?? 0);
}
