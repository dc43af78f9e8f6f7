import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * What one connection of an HTTP server may keep waiting. Node reads as many requests as a client sends and begins them
 * all, and it keeps an answer for as long as nobody takes it: here neither has more than a bound.
 */
export interface Connections {
  /**
   * To be asked once for each request, before anything else is done with it.
   * @returns whether it may be served; one that may not is answered by `refuse`, or its connection closes unanswered
   */
  accept(incoming: IncomingMessage, outgoing: ServerResponse): boolean;
  /**
   * Calls back once all requests that came whole over a connection are answered; at once where they are. One whose body
   * is still coming in is not waited for: it is told apart by `unanswered`.
   */
  afterAnswers(socket: Duplex, callback: (unanswered: ServerResponse | null) => void): void;
}

export interface ConnectionBounds {
  /** Connections that are open at once. Beyond that, one that no request runs on makes room for the next. */
  readonly connectionsMax: number;
  /** A client that takes nothing of an answer for so long is cut off, in milliseconds. */
  readonly stallMs: number;
  /** Answers a request beyond the bound. The connection must close with that answer. */
  readonly refuse: (outgoing: ServerResponse) => void;
}

/** Requests of one connection that are begun at once. Few clients send a second one before they have the first answer. */
export const unfinishedMax = 16;

interface ConnectionState {
  /** Requests that are begun and not yet answered to the last byte. */
  unfinished: number;
  /** Requests that came after the one that was refused. */
  surplus: number;
  /** The answer of the newest request. */
  newest: ServerResponse | null;
  afterAnswers: ((unanswered: ServerResponse | null) => void) | null;
}

/** Watches the connections of a server from now on. It takes over the server's `timeout`. */
export function guardConnections(server: Server, bounds: ConnectionBounds): Connections {
  const { connectionsMax, stallMs, refuse } = bounds;
  const states = new WeakMap<Duplex, ConnectionState>();
  const open = new OpenConnections();

  function stateOf(socket: Duplex): ConnectionState {
    let state = states.get(socket);
    if (state === undefined) {
      state = { unfinished: 0, surplus: 0, newest: null, afterAnswers: null };
      states.set(socket, state);
    }
    return state;
  }

  function finished(this: ServerResponse): void {
    const { socket } = this.req;
    const state = stateOf(socket);
    state.unfinished -= 1;
    if (state.newest === this) state.newest = null;
    callAfterAnswers(state);
  }

  server.on('connection', (socket) => {
    if (open.size >= connectionsMax) open.findOldest((other) => stateOf(other).unfinished === 0)?.destroy();
    open.add(socket);
  });
  // Node would put a 100 for a request whose turn has not come into the midst of the answer that is made for it. Who
  // sends one request behind another does not wait for it, and may not for ever (RFC 9110, section 10.1.1).
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (outgoing.socket !== null) outgoing.writeContinue();
    server.emit('request', incoming, outgoing);
  });
  // Node calls this after so long without a byte read, and without one taken of what is written.
  server.setTimeout(stallMs, (socket) => {
    // Otherwise it waits for an answer that is being made, which has its own limits.
    if (socket.writableLength > 0 || stateOf(socket).unfinished === 0) socket.destroy();
  });

  return {
    accept(incoming, outgoing) {
      const { socket } = incoming;
      const state = stateOf(socket);
      if (state.unfinished > unfinishedMax) {
        state.surplus += 1;
        // What is read already is held until the connection ends: a little is no harm, and a flood waits for nothing.
        if (state.surplus > unfinishedMax) socket.destroy();
        return false;
      }
      state.unfinished += 1;
      state.newest = outgoing;
      outgoing.on('close', finished);
      if (state.unfinished <= unfinishedMax) return true;
      refuse(outgoing);
      return false;
    },
    afterAnswers(socket, callback) {
      const state = stateOf(socket);
      state.afterAnswers = callback;
      callAfterAnswers(state);
    },
  };
}

function callAfterAnswers(state: ConnectionState): void {
  const { afterAnswers, newest, unfinished } = state;
  if (afterAnswers === null) return;
  const unanswered = newest !== null && !newest.req.complete ? newest : null;
  if (unfinished > (unanswered === null ? 0 : 1)) return;
  state.afterAnswers = null;
  afterAnswers(unanswered);
}

/** The connections of a server, by where they come from. */
class OpenConnections {
  readonly #byAddress = new Map<string, Set<Socket>>();
  size = 0;

  add(socket: Socket): void {
    const address = socket.remoteAddress ?? '';
    const sockets = this.#byAddress.get(address) ?? new Set();
    this.#byAddress.set(address, sockets.add(socket));
    this.size += 1;
    socket.on('close', () => {
      this.size -= 1;
      sockets.delete(socket);
      if (sockets.size === 0) this.#byAddress.delete(address);
    });
  }

  /** The oldest that will do, of the address that has most: one that opens many takes the places of its own. */
  findOldest(willDo: (socket: Socket) => boolean): Socket | null {
    const [most] = [...this.#byAddress.values()].toSorted((a, b) => b.size - a.size);
    for (const socket of most ?? []) if (!socket.destroyed && willDo(socket)) return socket;
    return null;
  }
}
