import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable, Writable } from 'node:stream';

/** Answer to a request that the gateway itself makes. */
export interface ExchangeAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** A request of Node's and its response, with no connection between them. */
export interface OwnExchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /**
   * Resolves with the answer once all of it is there, or with null if the answer was cut. Call this when the request is
   * over: a large answer is still being written then.
   */
  answer(): Promise<ExchangeAnswer | null>;
}

/**
 * Creates an exchange for code that serves requests from the network: the body is there from the beginning, and the
 * answer is kept.
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

/** The used parts of a `ServerResponse`, without a socket. */
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
    // An answer that has not begun gets no more bytes.
    if (this.headersSent && !this.writableEnded && !this.destroyed) await once(this, 'close');
    if (!this.writableEnded || !this.headersSent) return null;
    return { status: this.#status, headers: this.#headers, body: Buffer.concat(this.#parts) };
  }
}
