import { Socket } from 'node:net';

/** The settings that postgres.js hands to its option `socket`: those that are read here. */
interface Place {
  /** Path of a unix socket; false where there is none. */
  readonly path: string | false;
  readonly host: readonly string[];
  readonly port: readonly number[];
}

/** How a pool reconnects, as options of postgres.js; its types lack `socket`. */
export interface Reconnecting {
  readonly socket: (place: Place) => Socket;
  /** Seconds until a lost connection is tried again. */
  readonly backoff: () => number;
}

type Callback = (error?: Error | null) => void;

const watchEveryMs = 1000;
/** A connection that ends sooner counts as failed: no server stood behind its port. */
const shortLifeMs = 1000;

/**
 * Lets a pool survive an unreachable database. postgres.js sees no failure in a connection that is closed without an
 * error while it is being opened: it tries again at once, a thousand times a second, and never answers the query that
 * waits for it (https://github.com/porsager/postgres/issues/1193). A load balancer without a server behaves like that.
 * @param silenceMs a connection without a due answer for longer is lost: a live server has its own, shorter limits */
export function createReconnecting(silenceMs: number): Reconnecting {
  let shortLives = 0;
  const onClosed = (lifeMs: number): void => {
    shortLives = lifeMs < shortLifeMs ? shortLives + 1 : 0;
  };
  return {
    socket(place) {
      const socket = new DatabaseSocket(place, onClosed);
      socket.endWhenSilent(silenceMs);
      // The first message is written in the next turn at the latest, and this is the one after.
      setImmediate(() => setImmediate(() => socket.endUnlessAsked()));
      return socket;
    },
    backoff: () => reconnectSeconds(shortLives),
  };
}

/**
 * Returns the pause before the next try: a few milliseconds at first, up to one second. The default of postgres.js is
 * up to 20 seconds, during which a database that is back is not noticed.
 * @param failures consecutive failures of the whole pool
 */
function reconnectSeconds(failures: number): number {
  return (0.5 + Math.random() / 2) * Math.min(2 ** failures / 50, 1);
}

/**
 * A connection that reports every end as an error, for queries that still wait. postgres.js ignores the error when no
 * query waits; under TLS, Node hands it on to the TLS socket around this one.
 */
class DatabaseSocket extends Socket {
  // Read by postgres.js: the name that TLS verifies, and what its error messages say.
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly #path: string | undefined;
  readonly #beganMs = performance.now();
  readonly #onClosed: (lifeMs: number) => void;
  #isAsked = false;
  #isCancel = false;
  #isSecured = false;
  /** When the last bytes were written, and what had been read by then. */
  #written: { readonly atMs: number; readonly bytesRead: number } | null = null;

  constructor({ path, host, port }: Place, onClosed: (lifeMs: number) => void) {
    super();
    if (path === false) {
      this.host = host[0];
      this.port = port[0];
    } else this.#path = path;
    this.#onClosed = onClosed;
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, callback: Callback): void {
    this.#written = { atMs: performance.now(), bytesRead: this.bytesRead };
    if (this.#isAsked) {
      super._write(chunk, encoding, callback);
      return;
    }
    const opening = openingOf(chunk);
    if (opening === null) callback(this.#closed());
    else {
      this.#ask(opening);
      super._write(opening, encoding, callback);
    }
  }

  override _destroy(error: Error | null, callback: Callback): void {
    if (this.#isAsked) this.#onClosed(performance.now() - this.#beganMs);
    const isPeaceful = this.#isCancel || !this.#isAsked;
    const reason = error ?? (isPeaceful ? null : this.#closed());
    // The event `close` after the event `error` reports no error: a statement that is given to this connection between
    // the two would otherwise be answered by neither.
    super._destroy(null, () => callback(reason));
  }

  /**
   * Connects only when the first message is written. postgres.js collects its writes until the next turn of the event
   * loop; a connection that fails before that leaves its writes to the next connection. There they precede the opening
   * message, and postgres.js keeps both back until they are 1 KiB: `endUnlessAsked` lets them grow.
   */
  #ask(opening: Buffer): void {
    this.#isAsked = true;
    this.#isCancel = opening.readInt32BE(4) === cancelRequestCode;
    this.#isSecured = opening.readInt32BE(4) === sslRequestCode;
    if (this.#path !== undefined) this.connect({ path: this.#path });
    else this.connect({ host: this.host ?? 'localhost', port: this.port ?? 5432 });
  }

  /** Ends a connection that never opened, without an error: postgres.js retries at once, with the opening message. */
  endUnlessAsked(): void {
    if (!this.#isAsked) this.destroy();
  }

  /**
   * Destroys a connection on which something was written and nothing came back for too long. A network that drops
   * packets reports nothing, and the kernel retries for a quarter of an hour, while a new connection may work at once.
   */
  endWhenSilent(silenceMs: number): void {
    let seen = { bytesRead: 0, bytesWritten: 0 };
    const timer = setInterval(() => {
      // Under TLS only the socket's handle is written to, so the order of reads and writes is unknown: a connection
      // that owes no answer is ended as well when it was idle for that long.
      if (this.#isSecured && (seen.bytesRead !== this.bytesRead || seen.bytesWritten !== this.bytesWritten)) {
        this.#written = { atMs: performance.now(), bytesRead: this.bytesRead };
      }
      seen = { bytesRead: this.bytesRead, bytesWritten: this.bytesWritten };
      const owes = this.#written !== null && this.#written.bytesRead === this.bytesRead;
      if (!owes || performance.now() - (this.#written?.atMs ?? 0) < silenceMs) return;
      const error = new Error(`the database did not answer within ${silenceMs / 1000} s`);
      this.destroy(Object.assign(error, { code: 'ETIMEDOUT' }));
    }, watchEveryMs).unref();
    this.once('close', () => clearInterval(timer));
  }

  #closed(): Error {
    const place = this.#path ?? `${this.host}:${this.port}`;
    return Object.assign(new Error(`the connection to ${place} was closed`), { code: 'CONNECTION_CLOSED' });
  }
}

// https://www.postgresql.org/docs/current/protocol-message-formats.html: the four bytes after the length.
const startupCode = 196_608;
const sslRequestCode = 80_877_103;
/** Code of the only request that a server answers by closing the connection. */
const cancelRequestCode = 80_877_102;

/** Returns the opening message at the end of the written bytes, without the rest of a lost connection before it. */
function openingOf(written: Buffer): Buffer | null {
  for (let start = written.length - 8; start >= 0; start -= 1) {
    const length = written.length - start;
    if (written.readInt32BE(start) !== length) continue;
    const code = written.readInt32BE(start + 4);
    if (code === startupCode || (code === sslRequestCode && length === 8)) return written.subarray(start);
    if (code === cancelRequestCode && length === 16) return written.subarray(start);
  }
  return null;
}
