import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';

/** Local sockets that lead to ports of containers on another host. */
export interface Forwards {
  /** Returns the path of the socket for a port; creates the socket if there is none. */
  open(name: string, host: string, port: number): Promise<string>;
  /** Closes sockets whose names are not in `kept`. */
  keep(kept: ReadonlySet<string>): void;
  close(): void;
}

interface Forward {
  readonly server: Server;
  readonly socketPath: Promise<string>;
  readonly target: string;
  readonly sockets: Set<Duplex>;
}

/** Creates sockets in a folder that only this user may enter, because anyone who connects reaches the engine. */
export function createForwards(dial: (host: string, port: number) => Promise<Duplex>): Forwards {
  const open = new Map<string, Forward>();
  let folder: string | null = null;
  let count = 0;

  const end = (name: string): void => {
    const forward = open.get(name);
    open.delete(name);
    forward?.server.close();
    for (const socket of forward?.sockets ?? []) socket.destroy();
  };
  return {
    open(name, host, port) {
      const target = `${host}:${port}`;
      const known = open.get(name);
      if (known?.target === target) return known.socketPath;
      end(name);
      folder ??= mkdtempSync(join(tmpdir(), 'headgate-ssh-'));
      count += 1;
      const forward = listen(join(folder, `${count}.sock`), target, () => dial(host, port));
      open.set(name, forward);
      return forward.socketPath;
    },
    keep(kept) {
      for (const name of open.keys()) if (!kept.has(name)) end(name);
    },
    close() {
      for (const name of open.keys()) end(name);
      if (folder !== null) rmSync(folder, { recursive: true, force: true });
      folder = null;
    },
  };
}

function listen(path: string, target: string, dial: () => Promise<Duplex>): Forward {
  const sockets = new Set<Duplex>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    const drop = (): void => {
      sockets.delete(socket);
      socket.destroy();
    };
    socket.on('error', drop).on('close', drop);
    dial().then((channel) => {
      channel.on('error', drop).on('close', drop);
      socket.on('close', () => channel.destroy());
      if (socket.destroyed) channel.destroy();
      socket.pipe(channel).pipe(socket);
    }, drop);
  });
  const socketPath = new Promise<string>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => resolve(path));
  });
  return { server, socketPath, target, sockets };
}
