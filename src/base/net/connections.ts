import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Bounds the connections of an HTTP server. Node begins as many requests of one connection as a client sends, and keeps
 * an answer until the client reads it; both are bounded here.
 */
export interface Connections {
  /**
   * Called once for each request, before anything else is done with it.
   * @returns true if the request may be served; otherwise `refuse` answers it, or its connection closes unanswered
   */
  accept(incoming: IncomingMessage, outgoing: ServerResponse): boolean;
  /** Marks a connection that speaks another protocol from now on, such as a websocket: it is busy until it closes. */
  upgraded(socket: Duplex): void;
  /**
   * Calls back once all completely received requests of a connection are answered; at once if they are. Does not wait
   * for a request whose body is still arriving.
   */
  afterAnswers(socket: Duplex, callback: (unanswered: ServerResponse | null) => void): void;
  /**
   * Handles a timeout of a connection: reads the bytes that have arrived, and calls back unless a request begins with
   * them. Node runs timers first, so a process that was stopped for a while finds its timers expired before it has read
   * the bytes that clients sent meanwhile. Call this from a timer.
   */
  unlessAsked(socket: Duplex, callback: () => void): void;
}

export interface ConnectionBounds {
  /** Connections that are open at once. Beyond that, an idle connection is closed for each new one. */
  readonly connectionsMax: number;
  /** Milliseconds after which a client that reads nothing of an answer is cut off. */
  readonly stallMs: number;
  /** Answers a request beyond the bound. The answer must close the connection. */
  readonly refuse: (outgoing: ServerResponse) => void;
}

/** Requests of one connection that run at once. Few clients pipeline. */
export const unfinishedMax = 16;

interface ConnectionState {
  /** Requests that began and are not yet answered to the last byte. */
  unfinished: number;
  /** Requests that ever began. */
  begun: number;
  /** Requests that came after the rejected one. */
  surplus: number;
  /** The answer of the newest request. */
  newest: ServerResponse | null;
  afterAnswers: ((unanswered: ServerResponse | null) => void) | null;
}

const newState = (): ConnectionState => ({ unfinished: 0, begun: 0, surplus: 0, newest: null, afterAnswers: null });

/** Bounds the connections of a server from now on. Uses the server's `timeout` itself. */
export function guardConnections(server: Server, bounds: ConnectionBounds): Connections {
  const { connectionsMax, stallMs, refuse } = bounds;
  const states = new WeakMap<Duplex, ConnectionState>();
  const open = new OpenConnections();

  function stateOf(socket: Duplex): ConnectionState {
    let state = states.get(socket);
    if (state === undefined) {
      state = newState();
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
  // For a pipelined request Node would write its 100 into the middle of the answer before it. A client that pipelines
  // does not wait for a 100, and no client may wait indefinitely (RFC 9110, section 10.1.1).
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (outgoing.socket !== null) outgoing.writeContinue();
    server.emit('request', incoming, outgoing);
  });
  // Node calls this when no byte was read or written for the timeout.
  server.setTimeout(stallMs, (socket) => {
    // Otherwise the client waits for an answer in progress, which has limits of its own.
    if (socket.writableLength > 0) socket.destroy();
    else if (stateOf(socket).unfinished === 0) onceRead(stateOf(socket), () => socket.destroy());
  });

  return {
    accept(incoming, outgoing) {
      const { socket } = incoming;
      const state = stateOf(socket);
      state.begun += 1;
      if (state.unfinished > unfinishedMax) {
        state.surplus += 1;
        // Node keeps the requests it has read until the connection ends: a few do no harm, a flood closes it.
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
    upgraded(socket) {
      const state = stateOf(socket);
      state.unfinished += 1;
      state.begun += 1;
    },
    afterAnswers(socket, callback) {
      const state = stateOf(socket);
      state.afterAnswers = callback;
      callAfterAnswers(state);
    },
    unlessAsked: (socket, callback) => onceRead(stateOf(socket), callback),
  };
}

/** Calls back unless a request begins with the bytes that have arrived. */
function onceRead(state: ConnectionState, callback: () => void): void {
  const { begun } = state;
  // Immediates run after the bytes that have arrived are read.
  setImmediate(() => {
    if (state.begun === begun) callback();
  });
}

function callAfterAnswers(state: ConnectionState): void {
  const { afterAnswers, newest, unfinished } = state;
  if (afterAnswers === null) return;
  const unanswered = newest !== null && !newest.req.complete ? newest : null;
  if (unfinished > (unanswered === null ? 0 : 1)) return;
  state.afterAnswers = null;
  afterAnswers(unanswered);
}

/** The connections of a server, by client address. */
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

  /** Returns the oldest match of the address with the most connections: a client that opens many displaces its own. */
  findOldest(willDo: (socket: Socket) => boolean): Socket | null {
    const [most] = [...this.#byAddress.values()].toSorted((a, b) => b.size - a.size);
    for (const socket of most ?? []) if (!socket.destroyed && willDo(socket)) return socket;
    return null;
  }
}
