import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { AppError } from '#base/errors.ts';
import { bytesOf, type AnswerText } from './large-answer.ts';
import type { AnswerFormat } from './openai-answers.ts';
import type { Transcript } from './transcript.ts';

/**
 * The client's side of one request. A stream keeps its status open until the first frame: an earlier failure is an
 * ordinary error answer. If a client waits longer, comments keep its connection alive through all proxies.
 */
export interface Answer {
  /** The client left before the answer was complete. */
  readonly clientLeft: boolean;
  /** Status and headers are sent. */
  readonly headSent: boolean;
  /** A frame is sent, not only a comment. */
  readonly frameSent: boolean;
  /** Sets a header of the answer. Has no effect after the head is sent. */
  setHeader(name: string, value: string): void;
  dropHeader(name: string): void;
  /**
   * Sends comments after 5 s, and every 10 s, until the first frame.
   * @param describeWait called for each comment; null if there is nothing to describe
   */
  keepAlive(describeWait?: () => string | null): void;
  /** Sets a comment to send before the first frame if it is too late for a header by then; '' for none. */
  setRemark(text: string): void;
  /** Sends frames as latin1. Returns false if the client reads more slowly than they come; then `onDrain` follows. */
  frames(text: string): boolean;
  /** Copies all frames except the last ones into a transcript, including frames after the client left. */
  record(transcript: Transcript): void;
  /** Ends a stream with its last frames. */
  endStream(text: string): void;
  /** Sends a whole JSON answer. Blocks are sent one after the other, as fast as the client reads them. */
  json(status: number, text: AnswerText): void;
  /** Sends an error: a JSON answer, or an error frame and the end in a stream that has begun. */
  error(error: AppError): void;
  /** Closes the connection, if nothing more can be sent. */
  cut(): void;
  /** Bytes that the client has not read yet. */
  readonly unreadBytes: number;
  /** Calls the listener when a finished answer was read, or its client has left. */
  onTaken(listener: () => void): void;
  /** Sets the only listener. Calls it at once if the client has already left. */
  onGone(listener: () => void): void;
  onDrain(listener: () => void): void;
}

const firstCommentMs = 5_000;
const commentEveryMs = 10_000;
/** One line break: some SDKs (openai-go 3.42) read every empty line as an event, and find none before it. */
const comment = ': waiting for the model';
const streamHeaders = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

export function createAnswer(outgoing: ServerResponse, format: AnswerFormat): Answer {
  return new ResponseAnswer(outgoing, format);
}

class ResponseAnswer implements Answer {
  clientLeft = false;
  frameSent = false;
  readonly #outgoing: ServerResponse;
  readonly #format: AnswerFormat;
  readonly #headers: Record<string, string | number> = {};
  #comments: NodeJS.Timeout | null = null;
  #describeWait: () => string | null = () => null;
  #remark = '';
  #goneListener: (() => void) | null = null;
  #drainListener: (() => void) | null = null;
  /** Frames after the first are written to this socket, once no other response is ahead on the connection. */
  #socket: Socket | null = null;
  #transcript: Transcript | null = null;
  /** Blocks of a JSON answer that are not written yet. */
  #blocks: Buffer[] | null = null;
  #blockBytes = 0;

  constructor(outgoing: ServerResponse, format: AnswerFormat) {
    this.#outgoing = outgoing;
    this.#format = format;
    outgoing.on('close', () => this.#closed());
  }

  get headSent(): boolean {
    return this.#outgoing.headersSent;
  }

  setHeader(name: string, value: string): void {
    this.#headers[name] = value;
  }

  dropHeader(name: string): void {
    delete this.#headers[name];
  }

  keepAlive(describeWait?: () => string | null): void {
    this.#describeWait = describeWait ?? this.#describeWait;
    if (this.clientLeft || this.#outgoing.writableEnded) return;
    this.#comments ??= setTimeout(() => this.#comment(), firstCommentMs);
  }

  setRemark(text: string): void {
    this.#remark = text;
  }

  frames(text: string): boolean {
    this.#transcript?.add(text);
    if (this.#socket !== null) return this.#writeChunk(this.#socket, text);
    const outgoing = this.#outgoing;
    this.frameSent = true;
    // The client has left, and the answer may still be needed: there is nothing to wait for.
    if (this.clientLeft) return true;
    this.#beginFrames();
    const flows = outgoing.write(text, 'latin1');
    if (flows) this.#takeSocket();
    else outgoing.once('drain', () => this.#drained());
    return flows;
  }

  record(transcript: Transcript): void {
    this.#transcript = transcript;
  }

  endStream(text: string): void {
    this.#beginFrames();
    this.#outgoing.end(text, 'latin1');
  }

  json(status: number, text: AnswerText): void {
    this.#stopComments();
    this.#headers['content-type'] = 'application/json';
    this.#headers['content-length'] = typeof text === 'string' ? text.length : bytesOf(text);
    this.#outgoing.writeHead(status, this.#headers);
    if (typeof text === 'string') {
      this.#outgoing.end(text, 'latin1');
      return;
    }
    this.#blocks = [...text];
    this.#blockBytes = bytesOf(text);
    this.#writeBlock();
  }

  error(error: AppError): void {
    if (this.headSent) {
      this.endStream(this.#format.errorFrames(error));
      return;
    }
    Object.assign(this.#headers, error.headers);
    this.json(error.status, this.#format.errorBody(error));
  }

  cut(): void {
    this.#stopComments();
    this.#outgoing.destroy();
  }

  get unreadBytes(): number {
    return this.#outgoing.writableLength + this.#blockBytes;
  }

  onTaken(listener: () => void): void {
    if (this.#outgoing.closed) listener();
    else this.#outgoing.once('close', listener);
  }

  onGone(listener: () => void): void {
    this.#goneListener = listener;
    if (this.clientLeft) listener();
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener;
  }

  #closed(): void {
    this.#stopComments();
    if (this.#outgoing.writableFinished) return;
    this.clientLeft = true;
    this.#blocks = null;
    this.#blockBytes = 0;
    this.#goneListener?.();
    // Ends the wait for a client that reads slowly.
    this.#drained();
  }

  #drained(): void {
    this.#drainListener?.();
  }

  /** Writes one block per turn of the event loop. A fast client would otherwise get all of them in one turn. */
  #writeBlock(): void {
    const block = this.#blocks?.shift();
    if (block === undefined) {
      if (!this.clientLeft) this.#outgoing.end();
      return;
    }
    this.#blockBytes -= block.length;
    const next = (): void => void setImmediate(() => this.#writeBlock());
    if (this.#outgoing.write(block)) next();
    else this.#outgoing.once('drain', next);
  }

  #beginFrames(): void {
    this.#stopComments();
    const isLate = this.headSent;
    this.#sendHead();
    if (isLate && this.#remark !== '') this.#outgoing.write(`: ${this.#remark}\n`, 'latin1');
    this.#remark = '';
  }

  #sendHead(): void {
    if (!this.#outgoing.headersSent) this.#outgoing.writeHead(200, { ...this.#headers, ...streamHeaders });
  }

  #comment(): void {
    this.#sendHead();
    const wait = this.#describeWait();
    this.#outgoing.write(wait === null ? `${comment}\n` : `${comment}: ${wait}\n`, 'latin1');
    this.#comments = setTimeout(() => this.#comment(), commentEveryMs);
  }

  #stopComments(): void {
    if (this.#comments === null) return;
    clearTimeout(this.#comments);
    this.#comments = null;
  }

  /**
   * ServerResponse.write makes three writes of a chunk and corks them together. Once the head is out and the answer
   * is chunked, the same bytes go to the socket as one string. A response that waits behind another one on its
   * connection has no socket yet and goes on through ServerResponse.
   */
  #takeSocket(): void {
    const { socket, chunkedEncoding } = this.#outgoing;
    if (socket !== null && chunkedEncoding) this.#socket = socket;
  }

  #writeChunk(socket: Socket, text: string): boolean {
    if (socket.destroyed) return true;
    const flows = socket.write(`${text.length.toString(16)}\r\n${text}\r\n`, 'latin1');
    if (!flows) socket.once('drain', () => this.#drained());
    return flows;
  }
}
