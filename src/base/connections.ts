import type { IncomingMessage, Server, ServerResponse } from 'node:http';
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
export function guardConnections(server: Server, { stallMs, refuse }: ConnectionBounds): Connections {
  const states = new WeakMap<Duplex, ConnectionState>();

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
