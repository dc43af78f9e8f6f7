import type { Piece, Reader } from './fault-proxy.ts';

/**
 * Reads PostgreSQL's protocol along (https://www.postgresql.org/docs/current/protocol-message-formats.html), so that the
 * answer of a chosen statement can be lost: it has been done by then, and nobody hears of it.
 */

/** A statement, or several that were sent to one Sync, once the server has answered it. */
export interface Answered {
  /** As it was sent, whether it was prepared before or not. */
  readonly text: string;
  /** SQLSTATE; null where it was done. */
  readonly error: string | null;
  /** True when a transaction is open after it. */
  readonly inTransaction: boolean;
}

/** The fate of an answer; a number delays it by so many milliseconds. */
export type Fate = 'pass' | 'lose' | 'swallow' | number;

export type Judge = (answered: Answered) => Fate;

export function createPostgresReader(judge: Judge): Reader {
  return new PostgresReader(judge);
}

const headerBytes = 5;
/** BindComplete, DataRow, CommandComplete, ReadyForQuery: what says that a statement was done, and with what. */
const kept: ReadonlySet<string> = new Set(['2', 'D', 'C', 'Z']);

class PostgresReader implements Reader {
  readonly #judge: Judge;
  /** Bytes that are not a whole message yet. */
  #fromClient: Buffer = Buffer.alloc(0);
  #fromServer: Buffer = Buffer.alloc(0);
  /** The first message of a client has no type; until the server is ready for the first time, everything passes. */
  #hasOpened = false;
  #isReady = false;
  readonly #prepared = new Map<string, string>();
  /** Texts since the last Sync, and of those that the server still has to answer. */
  #texts: string[] = [];
  readonly #asked: string[] = [];
  #answer: Buffer[] = [];
  #error: string | null = null;

  constructor(judge: Judge) {
    this.#judge = judge;
  }

  toServer(bytes: Buffer): void {
    this.#fromClient = Buffer.concat([this.#fromClient, bytes]);
    if (!this.#hasOpened) {
      if (this.#fromClient.length < 4 || this.#fromClient.length < this.#fromClient.readInt32BE(0)) return;
      this.#fromClient = this.#fromClient.subarray(this.#fromClient.readInt32BE(0));
      this.#hasOpened = true;
    }
    const { messages, rest } = messagesOf(this.#fromClient);
    this.#fromClient = rest;
    for (const message of messages) this.#hear(message);
  }

  toClient(bytes: Buffer): readonly Piece[] {
    this.#fromServer = Buffer.concat([this.#fromServer, bytes]);
    const { messages, rest } = messagesOf(this.#fromServer);
    this.#fromServer = rest;
    return messages.flatMap((message) => this.#read(message));
  }

  #hear(message: Buffer): void {
    const type = String.fromCharCode(message[0] ?? 0);
    const texts = textsOf(message.subarray(headerBytes));
    if (type === 'P') {
      const [name = '', text = ''] = texts;
      this.#prepared.set(name, text);
    } else if (type === 'B') this.#texts.push(this.#prepared.get(texts[1] ?? '') ?? '');
    else if (type === 'Q') this.#asked.push(texts[0] ?? '');
    else if (type === 'S') this.#asked.push(this.#texts.splice(0).join('; '));
  }

  #read(message: Buffer): readonly Piece[] {
    const type = String.fromCharCode(message[0] ?? 0);
    if (!this.#isReady) {
      this.#isReady = type === 'Z';
      return [{ kind: 'bytes', bytes: message }];
    }
    this.#answer.push(message);
    if (type === 'E') this.#error = sqlstateOf(message);
    // Messages that a client waits for before it goes on, an error's Sync among them, and the end: nothing is done.
    if (!kept.has(type)) return [{ kind: 'bytes', bytes: Buffer.concat(this.#answer.splice(0)) }];
    if (type !== 'Z') return [];
    const bytes = Buffer.concat(this.#answer.splice(0));
    const inTransaction = message[headerBytes] !== 'I'.charCodeAt(0);
    const fate = this.#judge({ text: this.#asked.shift() ?? '', error: this.#error, inTransaction });
    this.#error = null;
    if (fate === 'lose') return [{ kind: 'break' }];
    if (fate === 'swallow') return [{ kind: 'silence' }];
    return [{ kind: 'bytes', bytes, ...(typeof fate === 'number' && { delayMs: fate }) }];
  }
}

function messagesOf(bytes: Buffer): { readonly messages: Buffer[]; readonly rest: Buffer } {
  const messages: Buffer[] = [];
  let at = 0;
  while (bytes.length - at >= headerBytes) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    if (end > bytes.length) break;
    messages.push(bytes.subarray(at, end));
    at = end;
  }
  return { messages, rest: bytes.subarray(at) };
}

/** The first two texts of a message, each ended by a zero. */
function textsOf(body: Buffer): string[] {
  const first = body.indexOf(0);
  const second = first === -1 ? -1 : body.indexOf(0, first + 1);
  return [body.subarray(0, Math.max(first, 0)), body.subarray(first + 1, Math.max(second, first + 1))].map(String);
}

/** Field "C" of an ErrorResponse. */
function sqlstateOf(message: Buffer): string {
  return /(?:^|\0)C([0-9A-Z]{5})\0/.exec(message.subarray(headerBytes).toString('latin1'))?.[1] ?? 'XX000';
}
