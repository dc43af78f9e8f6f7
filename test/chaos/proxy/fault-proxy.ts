import { rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Random } from '#test/random.ts';

/** A TCP proxy that does to a service what networks and servers do: all faults are set by command, per direction. */

export const directions = ['to-server', 'to-client'] as const;
export type Direction = (typeof directions)[number];

export interface Delay {
  readonly ms: number;
  /** Each piece waits up to so much longer: pieces of several connections overtake one another. */
  readonly jitterMs?: number;
}

/** Reads along on one connection; may keep back what goes to the client. */
export interface Reader {
  toServer(bytes: Buffer): void;
  /** Pieces to hand on, or what to do with the connection. */
  toClient(bytes: Buffer): readonly Piece[];
}

export type Piece =
  | { readonly kind: 'bytes'; readonly bytes: Buffer; readonly delayMs?: number }
  /** Breaks the connection on both sides. */
  | { readonly kind: 'break' }
  /** Drops everything from now on, in both directions, without closing connections. */
  | { readonly kind: 'silence' };

export interface FaultProxyOptions {
  /** The service's port on the loopback. */
  readonly port: number;
  /** A unix socket to listen on; a free TCP port otherwise. */
  readonly socketPath?: string;
  readonly random: Random;
  readonly newReader?: () => Reader;
}

/** Where new connections come to nothing. */
type Away = 'refused' | 'reset' | 'closed' | null;

export class FaultProxy {
  readonly #options: FaultProxyOptions;
  readonly #server: Server;
  readonly #links = new Set<Link>();
  #targetPort: number;
  #port = 0;
  #away: Away = null;
  /** Connections that were taken so far. */
  taken = 0;
  readonly faults: Faults;

  constructor(options: FaultProxyOptions) {
    this.#options = options;
    this.#targetPort = options.port;
    this.faults = { delays: new Map(), swallowed: new Set(), isSilent: false, random: options.random };
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#take(client));
  }

  async listen(): Promise<this> {
    await this.#listen();
    return this;
  }

  get port(): number {
    return this.#port;
  }

  /** From now on another server is meant; connections stay where they are. */
  pointTo(port: number): void {
    this.#targetPort = port;
  }

  /** Breaks every connection, once. */
  cut(): void {
    for (const link of this.#links) link.break();
  }

  /** Breaks every connection; new ones meet what `how` says until `restore`. */
  takeAway(how: 'refused' | 'reset' | 'closed'): void {
    this.#away = how;
    if (how === 'refused') this.#stopListening();
    this.cut();
  }

  delay(direction: Direction, delay: Delay): void {
    this.faults.delays.set(direction, delay);
  }

  /** Takes what is sent and hands it to nobody; it does not come later either. */
  swallow(direction: Direction): void {
    this.faults.swallowed.add(direction);
  }

  /** A black hole: nothing passes, no connection is closed. Sent bytes come late once it is over, as networks do it. */
  silence(which: 'all' | 'existing'): void {
    if (which === 'all') this.faults.isSilent = true;
    for (const link of this.#links) link.silence();
  }

  /** Everything passes again. */
  async restore(): Promise<void> {
    this.faults.delays.clear();
    this.faults.swallowed.clear();
    this.faults.isSilent = false;
    for (const link of this.#links) link.speak();
    const wasAway = this.#away;
    this.#away = null;
    if (wasAway === 'refused') await this.#listen();
  }

  async close(): Promise<void> {
    this.cut();
    if (this.#server.listening) {
      await new Promise((resolve) => {
        this.#server.close(resolve);
      });
    }
  }

  #take(client: Socket): void {
    this.taken += 1;
    client.on('error', () => undefined);
    if (this.#away === 'closed') {
      // Reads the client's writes, or the kernel would reset the connection.
      client.resume().end();
      return;
    }
    if (this.#away !== null) {
      client.destroy();
      return;
    }
    const server = connect({ port: this.#targetPort, host: '127.0.0.1', allowHalfOpen: true });
    const link = new Link(client, server, { faults: this.faults, reader: this.#options.newReader?.() ?? null });
    this.#links.add(link);
    link.onOver = () => this.#links.delete(link);
  }

  #listen(): Promise<void> {
    const { socketPath } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    const done = (): void => {
      const address = this.#server.address();
      if (typeof address === 'object' && address !== null) this.#port = address.port;
      resolve();
    };
    if (socketPath === undefined) this.#server.listen(this.#port, '127.0.0.1', done);
    else {
      rmSync(socketPath, { force: true });
      this.#server.listen(socketPath, done);
    }
    return promise;
  }

  #stopListening(): void {
    this.#server.close();
  }
}

interface Faults {
  readonly delays: Map<Direction, Delay>;
  readonly swallowed: Set<Direction>;
  isSilent: boolean;
  readonly random: Random;
}

interface LinkParts {
  readonly faults: Faults;
  readonly reader: Reader | null;
}

interface Due {
  readonly atMs: number;
  readonly deliver: () => void;
}

/** One direction of a connection: nothing overtakes there, whatever waits. */
class Lane {
  readonly #due: Due[] = [];
  #timer: NodeJS.Timeout | null = null;

  add(ms: number, deliver: () => void): void {
    const nowMs = performance.now();
    const last = this.#due.at(-1);
    if (last === undefined && ms <= 0) deliver();
    else this.#due.push({ atMs: Math.max(last?.atMs ?? 0, nowMs + ms), deliver });
    this.#arm();
  }

  #arm(): void {
    const [first] = this.#due;
    if (first === undefined || this.#timer !== null) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        const nowMs = performance.now();
        for (let next = this.#due[0]; next !== undefined && next.atMs <= nowMs; next = this.#due[0]) {
          this.#due.shift();
          next.deliver();
        }
        this.#arm();
      },
      Math.max(0, first.atMs - performance.now()),
    );
  }
}

/** One connection through the proxy. */
class Link {
  readonly #sockets: Readonly<Record<'client' | 'server', Socket>>;
  readonly #parts: LinkParts;
  readonly #lanes: Readonly<Record<Direction, Lane>> = { 'to-server': new Lane(), 'to-client': new Lane() };
  /** Calls that wait while there is silence, in the order in which they came. */
  #waiting: (() => void)[] | null;
  #isOver = false;
  onOver = (): void => undefined;

  constructor(client: Socket, server: Socket, parts: LinkParts) {
    this.#sockets = { client, server };
    this.#parts = parts;
    this.#waiting = parts.faults.isSilent ? [] : null;
    client.on('data', (bytes: Buffer) => this.#fromClient(bytes));
    server.on('data', (bytes: Buffer) => this.#fromServer(bytes));
    for (const [socket, direction] of [
      [client, 'to-server'],
      [server, 'to-client'],
    ] as const) {
      socket.on('error', () => undefined);
      socket.on('end', () => this.#send(direction, 0, (other) => other.end()));
      socket.on('close', (isBroken) => this.#send(direction, 0, () => this.#closed(isBroken)));
    }
  }

  silence(): void {
    this.#waiting ??= [];
  }

  speak(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = null;
    for (const deliver of waiting) deliver();
  }

  break(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { client, server } = this.#sockets;
    // A unix socket knows no reset.
    if (client.remoteAddress === undefined) client.destroy();
    else client.resetAndDestroy();
    server.destroy();
    this.onOver();
  }

  /** One side has closed: in peace when it has ended before, and then the other one is left to end as well. */
  #closed(isBroken: boolean): void {
    const { client, server } = this.#sockets;
    if (isBroken) this.break();
    else if (client.destroyed && server.destroyed) {
      this.#isOver = true;
      this.onOver();
    } else {
      client.end();
      server.end();
    }
  }

  #fromClient(bytes: Buffer): void {
    this.#parts.reader?.toServer(bytes);
    this.#send('to-server', 0, (server) => server.write(bytes));
  }

  #fromServer(bytes: Buffer): void {
    const pieces = this.#parts.reader?.toClient(bytes) ?? [{ kind: 'bytes', bytes } as const];
    for (const piece of pieces) {
      if (piece.kind === 'bytes') this.#send('to-client', piece.delayMs ?? 0, (client) => client.write(piece.bytes));
      else if (piece.kind === 'break') this.break();
      else this.silence();
    }
  }

  #send(direction: Direction, ownMs: number, write: (to: Socket) => void): void {
    const { faults } = this.#parts;
    if (this.#isOver || faults.swallowed.has(direction)) return;
    const delay = faults.delays.get(direction);
    const ms = ownMs + (delay?.ms ?? 0) + (delay?.jitterMs ?? 0) * faults.random.next();
    const to = this.#sockets[direction === 'to-server' ? 'server' : 'client'];
    const deliver = (): void => {
      if (this.#waiting !== null) this.#waiting.push(deliver);
      else if (!this.#isOver) write(to);
    };
    this.#lanes[direction].add(ms, deliver);
  }
}
