import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { freePort } from './free-port.ts';

/** A TCP proxy before Postgres, so that a test can take the database away and give it back. */
export interface DatabaseProxy {
  /** The database's URL through the proxy. */
  readonly url: string;
  /** Breaks every connection, and every new one as soon as it is made. */
  cut(): void;
  /** Breaks every connection; new ones get ECONNREFUSED, as from a machine where no server runs. */
  refuse(): void;
  /** Breaks every connection; new ones are taken, and then what the name says happens to them. */
  answerWith(what: Answer): void;
  restore(): void;
  /** Connections that were taken so far. */
  readonly taken: number;
  /** Lets the next insertion be committed, and breaks the connection before its answer comes back. */
  loseNextAnswer(): void;
  /**
   * The same for a COMMIT: the next one, or the one after `skip` others.
   * @param options `thenCut` breaks every connection with it, and every new one until `restore`
   */
  loseCommit(options?: { readonly skip?: number; readonly thenCut?: boolean }): void;
  /** Lets insertions be committed, and keeps their answers back until the returned function is called. */
  holdAnswers(): () => void;
  /** Keeps all answers back, as of a server that hangs, until the returned function is called. */
  holdAllAnswers(): () => void;
  /** Committed insertions and transactions whose answer was lost. */
  readonly lost: number;
  close(): Promise<void>;
}

/** `close-secured` is for a proxy that speaks TLS: it closes when that is agreed upon. */
type Answer = 'reset' | 'close' | 'close-secured' | 'silence';

export interface TlsFiles {
  readonly key: Buffer;
  readonly cert: Buffer;
}

/** @param tls makes the proxy's own side speak TLS, as a client of PostgreSQL asks for it */
export async function startDatabaseProxy(databaseUrl: string, tls?: TlsFiles): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl);
  const sockets = new Set<Socket>();
  let away: 'cut' | Answer | null = null;
  let taken = 0;
  let losing: 'INSERT 0 ' | 'COMMIT\0' | null = null;
  let skipped = 0;
  let cutsThen = false;
  let lost = 0;
  let holding: 'none' | 'insertions' | 'all' = 'none';
  const heldBack: (() => void)[] = [];

  const turnAway = async (client: Socket, how: 'cut' | Answer): Promise<void> => {
    sockets.add(client);
    client.on('error', () => undefined);
    client.on('close', () => sockets.delete(client));
    if (how === 'cut') client.destroy();
    if (how === 'reset') client.resetAndDestroy();
    // Reads the client's writes, or the kernel would reset the connection.
    if (how === 'close') client.resume().end();
    if (how === 'silence') client.resume();
    if (how === 'close-secured' && tls !== undefined) (await secure(client, tls)).resume().end();
  };
  const carry = (client: Socket): void => {
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
      const isReady = bytes.toString('latin1').endsWith('Z\0\0\0\x05I');
      const isMeant = losing !== null && isReady && bytes.includes(losing);
      if (isMeant) skipped -= 1;
      if (isMeant && skipped < 0) {
        losing = null;
        lost += 1;
        if (cutsThen) away = 'cut';
        for (const socket of cutsThen ? sockets : [client]) socket.destroy();
      } else if (holding === 'all' || (holding === 'insertions' && isReady && bytes.includes('INSERT 0 '))) {
        heldBack.push(() => client.write(bytes));
      } else client.write(bytes);
    });
  };
  const hold = (what: 'insertions' | 'all'): (() => void) => {
    holding = what;
    return () => {
      holding = 'none';
      for (const release of heldBack.splice(0)) release();
    };
  };
  const server: Server = createServer((client) => {
    taken += 1;
    if (away !== null) void turnAway(client, away);
    else if (tls === undefined) carry(client);
    else void secure(client, tls).then(carry);
  });
  // Where nobody listens for a while, nobody else may have got it meanwhile.
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const proxied = new URL(databaseUrl);
  proxied.hostname = '127.0.0.1';
  proxied.port = String(port);

  return {
    url: proxied.href,
    cut() {
      away = 'cut';
      for (const socket of sockets) socket.destroy();
    },
    refuse() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
    answerWith(what) {
      away = what;
      for (const socket of sockets) socket.destroy();
    },
    restore() {
      away = null;
      if (!server.listening) server.listen(port, '127.0.0.1');
    },
    loseNextAnswer() {
      losing = 'INSERT 0 ';
      skipped = 0;
    },
    loseCommit({ skip = 0, thenCut = false } = {}) {
      losing = 'COMMIT\0';
      skipped = skip;
      cutsThen = thenCut;
    },
    holdAnswers: () => hold('insertions'),
    holdAllAnswers: () => hold('all'),
    get taken() {
      return taken;
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

/** Says yes to a client that asks whether there is TLS: https://www.postgresql.org/docs/current/protocol-flow.html */
async function secure(client: Socket, tls: TlsFiles): Promise<Socket> {
  client.on('error', () => undefined);
  await once(client, 'data');
  client.write('S');
  const secured = new TLSSocket(client, { ...tls, isServer: true });
  secured.on('error', () => undefined);
  await once(secured, 'secure');
  return secured;
}
