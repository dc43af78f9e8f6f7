import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable, Writable } from 'node:stream';

/** What a request that the gateway itself makes was answered. */
export interface ExchangeAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** A request of Node's and the response to it, with no connection between them. */
export interface OwnExchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /**
   * What was answered, once all of it is there: a large answer is still being written when its request is over. Null
   * where it was cut. To be asked when the request is over.
   */
  answer(): Promise<ExchangeAnswer | null>;
}

/**
 * An exchange for what serves requests of the wire: the body is there from the beginning, the answer is kept.
 * @param headers in lower case
 */
export function createOwnExchange(body: Buffer, headers: Readonly<Record<string, string>>): OwnExchange {
  const stream = new Readable({ read: () => undefined });
  stream.push(body);
  stream.push(null);
  const length = { 'content-length': String(body.length) };
  const incoming = Object.assign(stream, { rawHeaders: [], headers: { ...headers, ...length }, complete: true });
  const outgoing = new KeptResponse();
  return {
    incoming: incoming as unknown as IncomingMessage,
    outgoing: outgoing as unknown as ServerResponse,
    answer: () => outgoing.answer(),
  };
}

/** What is used of a `ServerResponse`, without a socket. */
class KeptResponse extends Writable {
  headersSent = false;
  readonly socket = null;
  readonly chunkedEncoding = false;
  #status = 0;
  #headers: Readonly<Record<string, string>> = {};
  readonly #parts: Buffer[] = [];

  writeHead(status: number, headers: Readonly<Record<string, string | number>>): this {
    this.headersSent = true;
    this.#status = status;
    this.#headers = Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]),
    );
    return this;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#parts.push(chunk);
    done();
  }

  async answer(): Promise<ExchangeAnswer | null> {
    // Nothing more comes where nothing has begun.
    if (this.headersSent && !this.writableEnded && !this.destroyed) await once(this, 'close');
    if (!this.writableEnded || !this.headersSent) return null;
    return { status: this.#status, headers: this.#headers, body: Buffer.concat(this.#parts) };
  }
}
