/** Why a stream is no good. */
export type StreamFailure = 'error_frame' | 'garbage' | 'engine_abort';

/** One frame of a stream that holds a JSON object. */
export interface Frame {
  readonly text: string;
  /** Range of the JSON object inside the text. */
  readonly start: number;
  readonly end: number;
}

/** A frame longer than this is no part of any answer: 64 MiB. */
const frameBytesMax = 67_108_864;
const OPEN_BRACE = 0x7b;
const SPACE = 0x20;
/** Lines of a frame that are no data: comments, the other fields of server-sent events, empty ones. */
const otherLine = /(?::|(?:event|id|retry)(?::|\r?\n)|\r?\n)/y;

/** Cuts what comes of a stream of server-sent events into frames, and finds the JSON object of each. */
export abstract class FrameMeter {
  done = false;
  failure: StreamFailure | null = null;
  /** What has come of a frame that is not whole. */
  protected pending = '';
  /** The last characters of what is pending, in which the end of a frame may begin. */
  #pendingTail = '';

  /** Takes one frame with its JSON object; returns what the client gets of it. */
  protected abstract object(frame: Frame): string;

  /** `[DONE]` was read. */
  protected abstract endMark(): string;

  /** Takes what one read of the engine's answer brought; returns what the client gets of it, '' for nothing. */
  feed(text: string): string {
    if (this.pending !== '' && this.#goesOn(text)) return '';
    const input = this.pending === '' ? text : this.pending + text;
    this.pending = '';
    let out = '';
    let from = 0;
    // Looked for once: vLLM ends lines with \n alone, and a search per frame would run to the end each time.
    const hasCarriages = input.includes('\r');
    while (from < input.length && !this.done && this.failure === null) {
      const next = frameEnd(input, from, hasCarriages);
      if (next === -1) {
        this.pending = input.slice(from);
        this.#pendingTail = this.pending.slice(-2);
        if (this.pending.length > frameBytesMax) this.fail('garbage');
        break;
      }
      out += this.#frame(from === 0 && next === input.length ? input : input.slice(from, next));
      from = next;
    }
    return out;
  }

  protected fail(reason: StreamFailure): string {
    this.failure = reason;
    return '';
  }

  /** Searches only what is new of a frame that comes in many reads: all of it each time would take seconds. */
  #goesOn(text: string): boolean {
    const seam = this.#pendingTail + text;
    if (frameEnd(seam, 0, true) !== -1) return false;
    this.pending += text;
    this.#pendingTail = seam.slice(-2);
    if (this.pending.length > frameBytesMax) this.fail('garbage');
    return true;
  }

  /** One frame with its empty line: finds the JSON of its `data:` line. */
  #frame(text: string): string {
    let lineStart = 0;
    while (!text.startsWith('data:', lineStart)) {
      otherLine.lastIndex = lineStart;
      if (!otherLine.test(text)) return this.fail('garbage');
      const lineEnd = text.indexOf('\n', lineStart);
      if (lineEnd === -1 || lineEnd + 1 >= text.length) return text;
      lineStart = lineEnd + 1;
    }
    let start = lineStart + 5;
    if (text.charCodeAt(start) === SPACE) start += 1;
    let end = text.indexOf('\n', start);
    if (end === -1) end = text.length;
    // One frame holds one object: what stands on a second line would pass without being read.
    else if (end + 2 < text.length && text.includes('\ndata', end)) return this.fail('garbage');
    while (end > start && text.charCodeAt(end - 1) <= SPACE) end -= 1;
    if (text.charCodeAt(start) === OPEN_BRACE) return this.object({ text, start, end });
    return text.startsWith('[DONE]', start) ? this.endMark() : this.fail('garbage');
  }
}

/** Offset after the empty line that ends the frame at `from`, or -1 while it is not complete. */
function frameEnd(text: string, from: number, hasCarriages: boolean): number {
  const plain = text.indexOf('\n\n', from);
  const carriage = hasCarriages ? text.indexOf('\n\r\n', from) : -1;
  if (carriage !== -1 && (plain === -1 || carriage < plain)) return carriage + 3;
  return plain === -1 ? -1 : plain + 2;
}
