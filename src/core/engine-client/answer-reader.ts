import { parseAnswerHead, type AnswerHead } from './answer-head.ts';

type State =
  | 'head'
  | 'length'
  | 'until_close'
  | 'size'
  | 'extension'
  | 'size_lf'
  | 'chunk'
  | 'chunk_cr'
  | 'chunk_lf'
  | 'trailer_start'
  | 'trailer_line'
  | 'trailer_lf'
  | 'last_lf'
  | 'done'
  | 'garbage';

const CR = 13;
const LF = 10;
const SEMICOLON = 59;
const HTAB = 9;
const SPACE = 32;
const DELETE = 127;

/** Thirteen hexadecimal digits stay below the largest exact number. */
const chunkSizeDigitsMax = 13;
const statusLineStart = 'HTTP/1.';

/**
 * Reads one answer of HTTP/1.1 or 1.0 from bytes as they arrive, split at any place. The bytes are used only during
 * feed(). Pieces of a chunked body are moved together in the buffer, so that each read event makes one string.
 */
export class AnswerReader {
  /** The head of the answer; set from the read event on that completed the head. */
  head: AnswerHead | null = null;
  /** True if bytes followed the end of the answer. */
  surplus = false;

  #state: State = 'head';
  readonly #headerBytesMax: number;
  #headerBytes = 0;
  #headText = '';
  /** Number of characters of \r\n\r\n that the last bytes matched. */
  #headEndSeen = 0;
  /** Bytes missing from the body, or from the current chunk. */
  #bytesLeft = 0;
  #sizeDigits = 0;
  #extensionBytes = 0;

  constructor(headerBytesMax: number) {
    this.#headerBytesMax = headerBytesMax;
  }

  get done(): boolean {
    return this.#state === 'done';
  }

  get garbage(): boolean {
    return this.#state === 'garbage';
  }

  /** True if the body ends with the connection. */
  get endsWithConnection(): boolean {
    return this.#state === 'until_close';
  }

  /** Reads bytes 0 to length (exclusive) and returns their part of the body in latin1, '' if there is none. */
  feed(bytes: Buffer, length: number): string {
    let at = 0;
    while (this.#state === 'head' && at < length) at = this.#readHead(bytes, at, length);
    switch (this.#state) {
      case 'done':
        this.surplus = at < length;
        return '';
      case 'head':
      case 'garbage':
        return '';
      case 'until_close':
        return bytes.toString('latin1', at, length);
      case 'length':
        return this.#readLength(bytes, at, length);
      default:
        return this.#readChunked(bytes, at, length);
    }
  }

  #readLength(bytes: Buffer, at: number, length: number): string {
    const end = Math.min(length, at + this.#bytesLeft);
    this.#bytesLeft -= end - at;
    if (this.#bytesLeft === 0) this.#state = 'done';
    this.surplus = end < length;
    return bytes.toString('latin1', at, end);
  }

  /** Reads up to the end of a head; returns the offset after it, or length if the head is incomplete. */
  #readHead(bytes: Buffer, from: number, length: number): number {
    const end = Math.min(length, from + this.#headerBytesMax - this.#headerBytes);
    let seen = this.#headEndSeen;
    let at = from;
    while (at < end && seen < 4) {
      const byte = bytes[at];
      at += 1;
      if (byte === LF) {
        if (seen !== 1 && seen !== 3) return this.#refuse(length);
        seen += 1;
      } else if (seen === 1 || seen === 3) {
        return this.#refuse(length);
      } else if (byte === CR) {
        seen += 1;
      } else {
        seen = 0;
      }
    }
    this.#headEndSeen = seen;
    this.#headerBytes += at - from;
    const text = this.#headText + bytes.toString('latin1', from, at);
    if (seen === 4) {
      this.#takeHead(text);
      return at;
    }
    this.#headText = text;
    // Rejects an answer that does not begin like HTTP at once: the server may be waiting for the client.
    const beginsWrong = !statusLineStart.startsWith(text.slice(0, statusLineStart.length));
    if (beginsWrong || this.#headerBytes >= this.#headerBytesMax) return this.#refuse(length);
    return length;
  }

  #refuse(length: number): number {
    this.#state = 'garbage';
    this.#headText = '';
    return length;
  }

  #takeHead(text: string): void {
    this.#headText = '';
    this.#headEndSeen = 0;
    const head = parseAnswerHead(text);
    // No request asks to switch protocols, so 101 is as wrong as a malformed head.
    if (head === null || head.status === 101) {
      this.#state = 'garbage';
      return;
    }
    if (head.status < 200) return;
    this.head = head;
    switch (head.framing.kind) {
      case 'none':
        this.#state = 'done';
        return;
      case 'length':
        this.#state = 'length';
        this.#bytesLeft = head.framing.bodyBytes;
        return;
      case 'chunked':
        this.#state = 'size';
        return;
      case 'until_close':
        this.#state = 'until_close';
    }
  }

  #readChunked(bytes: Buffer, from: number, length: number): string {
    let at = from;
    let textStart = from;
    let textEnd = from;
    while (at < length && this.#state !== 'done' && this.#state !== 'garbage') {
      if (this.#state !== 'chunk') {
        at = this.#readFrame(bytes, at, length);
        continue;
      }
      const end = Math.min(length, at + this.#bytesLeft);
      if (textStart === textEnd) {
        textStart = at;
        textEnd = end;
      } else {
        bytes.copyWithin(textEnd, at, end);
        textEnd += end - at;
      }
      this.#bytesLeft -= end - at;
      if (this.#bytesLeft === 0) this.#state = 'chunk_cr';
      at = end;
    }
    if (this.#state === 'done') this.surplus = at < length;
    return textStart === textEnd ? '' : bytes.toString('latin1', textStart, textEnd);
  }

  /** Reads the framing between the data of two chunks, up to the next data or the end of the bytes. */
  #readFrame(bytes: Buffer, from: number, length: number): number {
    let at = from;
    let state = this.#state;
    while (at < length && state !== 'chunk' && state !== 'done' && state !== 'garbage') {
      state = this.#nextState(state, bytes[at] ?? 0);
      at += 1;
    }
    this.#state = state;
    return at;
  }

  #nextState(state: State, byte: number): State {
    switch (state) {
      case 'size':
        return this.#sizeByte(byte);
      case 'extension':
        return this.#extensionByte(byte);
      case 'size_lf':
        return byte === LF ? this.#startChunk() : 'garbage';
      case 'chunk_cr':
        return byte === CR ? 'chunk_lf' : 'garbage';
      case 'chunk_lf':
        return byte === LF ? 'size' : 'garbage';
      case 'trailer_start':
        return byte === CR ? 'last_lf' : this.#trailerByte(byte);
      case 'trailer_line':
        return byte === CR ? 'trailer_lf' : this.#trailerByte(byte);
      case 'trailer_lf':
        return byte === LF ? 'trailer_start' : 'garbage';
      case 'last_lf':
        return byte === LF ? 'done' : 'garbage';
      default:
        return 'garbage';
    }
  }

  #sizeByte(byte: number): State {
    const digit = hexDigit(byte);
    if (digit >= 0) {
      this.#bytesLeft = this.#bytesLeft * 16 + digit;
      this.#sizeDigits += 1;
      return this.#sizeDigits <= chunkSizeDigitsMax ? 'size' : 'garbage';
    }
    if (this.#sizeDigits === 0) return 'garbage';
    if (byte === CR) return 'size_lf';
    return byte === SEMICOLON ? 'extension' : 'garbage';
  }

  #extensionByte(byte: number): State {
    if (byte === CR) return 'size_lf';
    this.#extensionBytes += 1;
    return isText(byte) && this.#extensionBytes <= this.#headerBytesMax ? 'extension' : 'garbage';
  }

  #startChunk(): State {
    this.#sizeDigits = 0;
    this.#extensionBytes = 0;
    return this.#bytesLeft === 0 ? 'trailer_start' : 'chunk';
  }

  /** Skips trailers: no trailer of an engine is used. */
  #trailerByte(byte: number): State {
    this.#headerBytes += 1;
    return isText(byte) && this.#headerBytes <= this.#headerBytesMax ? 'trailer_line' : 'garbage';
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

function isText(byte: number): boolean {
  return byte === HTAB || (byte >= SPACE && byte !== DELETE);
}
