import { skipSpace } from '#base/json/json.ts';

/** Reason why a stream is invalid. */
export type StreamFailure = 'error_frame' | 'garbage' | 'engine_abort';

/** One frame of a stream that holds a JSON object. */
export interface Frame {
  readonly text: string;
  /** Range of the JSON object inside the text. */
  readonly start: number;
  readonly end: number;
}

/** Maximum length of a frame, 64 MiB. A longer one cannot be part of an answer. */
const frameBytesMax = 67_108_864;
const LINE_FEED = 0x0a;
const OPEN_BRACE = 0x7b;
const SPACE = 0x20;
/** UTF-8's byte order mark as latin1. */
const byteOrderMark = '\u00ef\u00bb\u00bf';

/**
 * Splits a stream of server-sent events into frames, and finds the JSON object of each. It parses them as
 * https://html.spec.whatwg.org/multipage/server-sent-events.html requires: any of the three line ends, data on several
 * lines, fields in any order. A frame in vLLM's form is passed on with its bytes. Any other frame is passed on
 * normalized: its data on one line, without fields that no client reads, and without an empty line if there is no data.
 */
export abstract class FrameMeter {
  done = false;
  failure: StreamFailure | null = null;
  /** Received part of an incomplete frame. */
  protected pending = '';
  /** Last characters of `pending`, in which the end of a frame may begin. */
  #pendingTail = '';
  #isFirst = true;
  /**
   * True if the last read ended with the carriage return of an empty line: a line feed that comes next belongs to it.
   */
  #endedInCarriage = false;

  /** Takes one frame with its JSON object; returns the text for the client. */
  protected abstract object(frame: Frame): string;

  /** Called when `[DONE]` was read. */
  protected abstract endMark(): string;

  /** Takes the text of one read of the engine's answer; returns the text for the client, '' for none. */
  feed(read: string): string {
    const text = this.#endedInCarriage ? this.#afterCarriage(read) : read;
    if (this.pending !== '' && this.#goesOn(text)) return '';
    const input = this.pending === '' ? text : this.pending + text;
    this.pending = '';
    let out = '';
    let from = 0;
    // Checked once: vLLM ends lines with \n only, and a search per frame would run to the end each time.
    const hasCarriages = input.includes('\r');
    while (from < input.length && !this.done && this.failure === null) {
      const next = frameEnd(input, from, hasCarriages);
      if (next === -1) {
        this.pending = input.slice(from);
        this.#pendingTail = this.pending.slice(-2);
        if (this.pending.length > frameBytesMax) this.fail('garbage');
        break;
      }
      const whole = from === 0 && next === input.length ? input : input.slice(from, next);
      out += hasCarriages || this.#isFirst ? this.#carefully(whole, next === input.length) : this.#frame(whole);
      from = next;
    }
    return out;
  }

  protected fail(reason: StreamFailure): string {
    this.failure = reason;
    return '';
  }

  #afterCarriage(text: string): string {
    if (text === '') return text;
    this.#endedInCarriage = false;
    return text.charCodeAt(0) === LINE_FEED ? text.slice(1) : text;
  }

  /**
   * Searches only the new part of a frame that comes in many reads: a search of all of it each time would take seconds.
   */
  #goesOn(text: string): boolean {
    const seam = this.#pendingTail + text;
    if (frameEnd(seam, 0, true) !== -1) return false;
    this.pending += text;
    this.#pendingTail = seam.slice(-2);
    if (this.pending.length > frameBytesMax) this.fail('garbage');
    return true;
  }

  /** Handles a frame that may begin with a byte order mark, or has carriage returns. */
  #carefully(text: string, isLast: boolean): string {
    const whole = this.#isFirst && text.startsWith(byteOrderMark) ? text.slice(byteOrderMark.length) : text;
    this.#isFirst = false;
    const carriage = whole.indexOf('\r');
    if (carriage === -1) return this.#frame(whole);
    const isPlain = carriage === whole.length - 4 && whole.indexOf('\n') === carriage + 1 && whole.endsWith('\r\n\r\n');
    if (isPlain && whole.startsWith('data:')) return this.#data(whole, dataStart(whole, 0), carriage);
    // A line feed may follow in the next read, or nothing: both are one end of a line.
    if (!whole.endsWith('\r')) return this.#oddFrame(whole);
    this.#endedInCarriage = isLast;
    return this.#oddFrame(`${whole}\n`);
  }

  /** Handles one frame with its empty line, without carriage returns. */
  #frame(text: string): string {
    const line = text.startsWith('event:') ? text.indexOf('\n') + 1 : 0;
    if (!text.startsWith('data:', line)) return this.#oddFrame(text);
    const start = dataStart(text, line);
    const end = text.indexOf('\n', start);
    return end === text.length - 2 ? this.#data(text, start, end) : this.#oddFrame(text);
  }

  #oddFrame(text: string): string {
    const frame = readFrame(text);
    if (frame === null) return this.fail('garbage');
    const { whole, start, end } = frame;
    return start === -1 ? whole : this.#data(whole, start, end);
  }

  #data(text: string, lineStart: number, lineEnd: number): string {
    const start = Math.min(skipSpace(text, lineStart), lineEnd);
    let end = lineEnd;
    while (end > start && text.charCodeAt(end - 1) <= SPACE) end -= 1;
    if (text.charCodeAt(start) === OPEN_BRACE) return this.object({ text, start, end });
    if (text.startsWith('[DONE]', start)) return this.endMark();
    // Some engines keep a connection alive with empty events.
    return end === start ? '' : this.fail('garbage');
  }
}

/** Returns the offset at which the value of the `data:` at `line` begins. */
const dataStart = (text: string, line: number): number => line + (text.charCodeAt(line + 5) === SPACE ? 6 : 5);

/** Two ends of lines, each of which may be \n, \r\n or \r. */
const emptyLine = /\n\n|\n\r\n?|\r\r\n?/g;

/** Returns the offset after the empty line that ends the frame at `from`, or -1 if the frame is incomplete. */
function frameEnd(text: string, from: number, hasCarriages: boolean): number {
  if (hasCarriages) {
    emptyLine.lastIndex = from;
    return emptyLine.test(text) ? emptyLine.lastIndex : -1;
  }
  const end = text.indexOf('\n\n', from);
  return end === -1 ? -1 : end + 2;
}

/** A frame of any form, in the form for clients. */
interface ReadFrame {
  readonly whole: string;
  /** Offset at which its data begins; -1 for a frame without data. */
  readonly start: number;
  readonly end: number;
}

const anyLine = /([^\r\n]*)(?:\r\n|\r|\n)/g;
/** Matches a name, and the value after one colon and one space; comments have the name ''. */
const anyField = /^(event|data|id|retry|)(?:$|:) ?(.*)$/s;
/**
 * Matches the only other form whose bytes are passed on unchanged: comments and other fields around one line of data.
 */
const plainFrame =
  /^(?:(?::|(?:event|id|retry):)[^\r\n]*\r?\n)*data: ?([^\r\n]*)\r?\n(?:(?::|(?:id|retry):)[^\r\n]*\r?\n)*\r?\n$/d;

/** @returns null if data on several lines is not a JSON value */
function readFrame(text: string): ReadFrame | null {
  const [start = -1, end = -1] = plainFrame.exec(text)?.indices?.[1] ?? [];
  if (end > start) return { whole: text, start, end };
  const { event, others, data } = readLines(text);
  const joined = data.join(' ').trim();
  // The event's name is dropped together with its empty data.
  if (joined === '') return { whole: others, start: -1, end: -1 };
  // Between the tokens of JSON a line end is whitespace; inside a token it is an error.
  if (data.length > 1 && !isJson(data.join('\n'))) return null;
  const head = `${others}${event}data: `;
  return { whole: `${head}${joined}\n\n`, start: head.length, end: head.length + joined.length };
}

interface FrameLines {
  /** The last line that names the event, '' if there is none. */
  readonly event: string;
  /** Comments and other fields that clients know. */
  readonly others: string;
  /** The values that are not blank. */
  readonly data: readonly string[];
}

function readLines(text: string): FrameLines {
  let event = '';
  let others = '';
  const data: string[] = [];
  for (const [, line = ''] of text.matchAll(anyLine)) {
    const [, name, value = ''] = line === '' ? [] : (anyField.exec(line) ?? []);
    if (name === 'data') data.push(...(value.trim() === '' ? [] : [value]));
    else if (name === 'event') event = `${line}\n`;
    else if (name !== undefined) others += `${line}\n`;
  }
  return { event, others, data };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
