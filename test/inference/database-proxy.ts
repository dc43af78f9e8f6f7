import { connect, createServer, type Server, type Socket } from 'node:net';

/** A TCP proxy before Postgres, so that a test can take the database away and give it back. */
export interface DatabaseProxy {
  /** The database's URL through the proxy. */
  readonly url: string;
  /** Breaks every connection, and every new one as soon as it is made. */
  cut(): void;
  /** Breaks every connection; new ones are refused, as by a machine where no server runs. */
  refuse(): void;
  restore(): void;
  /** Lets the next insertion be committed, and breaks the connection before its answer comes back. */
  loseNextAnswer(): void;
  /** Lets insertions be committed, and keeps their answers back until the returned function is called. */
  holdAnswers(): () => void;
  /** Committed insertions whose answer was lost. */
  readonly lost: number;
  close(): Promise<void>;
}

export async function startDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl);
  const sockets = new Set<Socket>();
  let away = false;
  let losing = false;
  let lost = 0;
  let holding = false;
  const heldBack: (() => void)[] = [];

  const server: Server = createServer((client) => {
    if (away) {
      client.destroy();
      return;
    }
    const database = connect(Number(target.port), target.hostname);
    for (const socket of [client, database]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        database.destroy();
      });
    }
    client.on('data', (bytes: Buffer) => {
      database.write(bytes);
    });
    database.on('data', (bytes: Buffer) => {
      // Complete, and the server is ready for the next: it is committed, and nobody hears of it.
      const isCommitted = bytes.includes('INSERT 0 ') && bytes.toString('latin1').endsWith('Z\0\0\0\x05I');
      if (losing && isCommitted) {
        losing = false;
        lost += 1;
        client.destroy();
      } else if (holding && isCommitted) {
        heldBack.push(() => client.write(bytes));
      } else client.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const proxied = new URL(databaseUrl);
  proxied.hostname = '127.0.0.1';
  proxied.port = String(typeof address === 'object' && address !== null ? address.port : 0);

  return {
    url: proxied.href,
    cut() {
      away = true;
      for (const socket of sockets) socket.destroy();
    },
    refuse() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
    restore() {
      away = false;
      if (!server.listening) server.listen(Number(proxied.port), '127.0.0.1');
    },
    loseNextAnswer() {
      losing = true;
    },
    holdAnswers() {
      holding = true;
      return () => {
        holding = false;
        for (const release of heldBack.splice(0)) release();
      };
    },
    get lost() {
      return lost;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
}
