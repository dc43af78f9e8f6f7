import { connect, createServer, type Server, type Socket } from 'node:net';

/** A TCP line whose far end can be another server's from one moment on, as an address that moves does. */
export interface Line {
  readonly url: string;
  /** Breaks every connection; new ones reach this port, or nobody where it is null. */
  lead(port: number | null): void;
  close(): void;
}

export async function openLine(first: number): Promise<Line> {
  let target: number | null = first;
  const sockets = new Set<Socket>();
  const server: Server = createServer((near) => {
    if (target === null) return void near.destroy();
    const far = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const drop = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `redis://127.0.0.1:${port}`,
    lead(port) {
      target = port;
      drop();
    },
    close() {
      server.close();
      drop();
    },
  };
}
