import { Socket } from 'node:net';

/** What postgres.js hands to its option `socket`, of all its settings. */
interface Place {
  /** Of a unix socket; false where there is none. */
  readonly path: string | false;
  readonly host: readonly string[];
  readonly port: readonly number[];
}

/** The reconnecting of a pool, as options of postgres.js; its types do not know `socket`. */
export interface Reconnecting {
  readonly socket: (place: Place) => Socket;
  /** Seconds that a connection that was lost waits before the next try. */
  readonly backoff: () => number;
}

type Callback = (error?: Error | null) => void;
type Chunk = Parameters<NonNullable<Socket['_writev']>>[0][number];

/** A connection that ends sooner was none: nothing that could answer stood behind its port. */
const shortLifeMs = 1000;

/**
 * What a pool needs to get over a database that is away. postgres.js takes a connection that is closed in peace while
 * it is being made for no failure at all: it tries again at once, a thousand times a second, and never answers the
 * query that waits for it (https://github.com/porsager/postgres/issues/1193). That is how a load balancer with no
 * server behind it looks.
 */
export function createReconnecting(): Reconnecting {
  let shortLives = 0;
  const onClosed = (lifeMs: number): void => {
    shortLives = lifeMs < shortLifeMs ? shortLives + 1 : 0;
  };
  return {
    socket: (place) => new DatabaseSocket(place, onClosed),
    backoff: () => reconnectSeconds(shortLives),
  };
}

/**
 * A few milliseconds, then up to a second. By default postgres.js waits up to 20, and a database that has come back is
 * not seen for so long.
 * @param failures of the whole pool in a row
 */
function reconnectSeconds(failures: number): number {
  return (0.5 + Math.random() / 2) * Math.min(2 ** failures / 50, 1);
}

/**
 * A connection whose every end is an error to those who still wait for it. postgres.js ignores one that comes when
 * nothing waits; under TLS Node hands it on to the TLS socket around this one.
 */
class DatabaseSocket extends Socket {
  // Names that postgres.js reads: for the name that TLS verifies, and for its messages.
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly #path: string | undefined;
  readonly #beganMs = performance.now();
  readonly #onClosed: (lifeMs: number) => void;
  #isAsked = false;
  #isCancel = false;

  constructor({ path, host, port }: Place, onClosed: (lifeMs: number) => void) {
    super();
    if (path === false) {
      this.host = host[0];
      this.port = port[0];
    } else this.#path = path;
    this.#onClosed = onClosed;
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, callback: Callback): void {
    if (!this.#isAsked) this.#ask(chunk);
    super._write(chunk, encoding, callback);
  }

  override _writev(chunks: Chunk[], callback: Callback): void {
    if (!this.#isAsked) this.#ask(chunks[0]?.chunk);
    super._writev?.(chunks, callback);
  }

  override _destroy(error: Error | null, callback: Callback): void {
    this.#onClosed(performance.now() - this.#beganMs);
    const reason = error ?? (this.#isCancel ? null : this.#closed());
    // After the event `error` the event `close` says that there was none: a statement that is given to this connection
    // between the two would otherwise be answered by neither.
    super._destroy(null, () => callback(reason));
  }

  /**
   * Connects only when the first message is written. postgres.js collects what it writes until the next turn of the
   * event loop; a failure before that would leave the message for the next connection, which then sends nothing.
   */
  #ask(message: unknown): void {
    this.#isAsked = true;
    this.#isCancel = message instanceof Buffer && isCancelRequest(message);
    if (this.#path !== undefined) this.connect({ path: this.#path });
    else this.connect({ host: this.host ?? 'localhost', port: this.port ?? 5432 });
  }

  #closed(): Error {
    const place = this.#path ?? `${this.host}:${this.port}`;
    return Object.assign(new Error(`the connection to ${place} was closed`), { code: 'CONNECTION_CLOSED' });
  }
}

/** The one request that a server answers by closing: https://www.postgresql.org/docs/current/protocol-message-formats.html */
function isCancelRequest(message: Buffer): boolean {
  return message.length === 16 && message.readInt32BE(4) === 80_877_102;
}
