import { wrongBody } from './read-body.ts';

/** Headers of one part of a form. */
export interface PartHead {
  readonly name: string;
  /** Null for a field that is not a file. */
  readonly filename: string | null;
}

/** Receives the bytes of one part as they arrive. */
export interface PartSink {
  add(bytes: Buffer): Promise<void> | void;
  end(): Promise<void> | void;
}

export interface MultipartStreamOptions {
  readonly contentType: string;
  readonly partsMax: number;
}

const headBytesMax = 8192;
const preambleBytesMax = 1024;
/** Most bytes after the end of the form, which are ignored: a body without a length could go on indefinitely. */
const epilogueBytesMax = 65_536;
const dash = 0x2d;

/**
 * @throws ValidationError if the content type names no boundary, or a boundary with characters that RFC 2046 does not
 * allow
 */
export function boundaryOf(contentType: string): string {
  const found = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType);
  const text = found?.[1] ?? found?.[2];
  if (text === undefined || !/^[\w'()+,./:=? -]*[\w'()+,./:=?-]$/.test(text)) {
    throw wrongBody('needs a boundary in its content type');
  }
  return text;
}

/**
 * Reads a form (RFC 7578) as it arrives. Only the last received part of the body, and a part's headers, are in memory.
 * A file may be as long as its sink accepts.
 * @throws ValidationError if the body is not a form of this kind; errors that the sinks throw
 */
export async function readMultipart(
  body: AsyncIterable<Buffer>,
  { contentType, partsMax }: MultipartStreamOptions,
  open: (head: PartHead) => PartSink,
): Promise<void> {
  const form = new Form(boundaryOf(contentType), partsMax, open);
  for await (const bytes of body) await form.take(bytes);
  form.requireEnd();
}

class Form {
  readonly #delimiter: Buffer;
  readonly #partsMax: number;
  readonly #open: (head: PartHead) => PartSink;
  /** Starts with the end of a line, so that the first delimiter looks as all others do. */
  #rest: Buffer = Buffer.from('\r\n');
  #sink: PartSink | null = null;
  #state: 'preamble' | 'delimiter' | 'head' | 'body' | 'end' = 'preamble';
  #parts = 0;
  #epilogueBytes = 0;

  constructor(boundary: string, partsMax: number, open: (head: PartHead) => PartSink) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`);
    this.#partsMax = partsMax;
    this.#open = open;
  }

  async take(bytes: Buffer): Promise<void> {
    if (this.#state === 'end') {
      this.#epilogueBytes += bytes.length;
      if (this.#epilogueBytes > epilogueBytesMax) throw wrongBody('has data after the end of the form');
      return;
    }
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    while (await this.#step());
  }

  requireEnd(): void {
    if (this.#state !== 'end') throw wrongBody('ends before the end of the form');
  }

  /** @returns false if more bytes are needed */
  #step(): Promise<boolean> | boolean {
    switch (this.#state) {
      case 'preamble':
        return this.#preamble();
      case 'delimiter':
        return this.#afterDelimiter();
      case 'head':
        return this.#head();
      case 'body':
        return this.#body();
      case 'end':
        return false;
    }
  }

  #preamble(): boolean {
    const at = this.#rest.indexOf(this.#delimiter);
    if (at === -1) {
      if (this.#rest.length > preambleBytesMax) throw wrongBody('does not begin with its boundary');
      return false;
    }
    this.#rest = this.#rest.subarray(at + this.#delimiter.length);
    this.#state = 'delimiter';
    return true;
  }

  #afterDelimiter(): boolean {
    if (this.#rest.length < 2) return false;
    if (this.#rest[0] === dash && this.#rest[1] === dash) {
      this.#state = 'end';
      this.#rest = Buffer.alloc(0);
      return false;
    }
    const line = this.#rest.indexOf('\r\n');
    if (line === -1) {
      if (this.#rest.length > headBytesMax) throw wrongBody('has an unfinished boundary');
      return false;
    }
    if (!/^[ \t]*$/.test(this.#rest.subarray(0, line).toString('latin1'))) {
      throw wrongBody('has characters after a boundary');
    }
    // The line end stays in the rest: a head ends with two line ends, even if the head is empty.
    this.#rest = this.#rest.subarray(line);
    this.#state = 'head';
    return true;
  }

  #head(): boolean {
    const end = this.#rest.indexOf('\r\n\r\n');
    if (end > headBytesMax || (end === -1 && this.#rest.length > headBytesMax)) {
      throw wrongBody('has a part with headers that are too long');
    }
    if (end === -1) return false;
    this.#parts += 1;
    if (this.#parts > this.#partsMax) throw wrongBody(`has more than ${this.#partsMax} parts`);
    this.#sink = this.#open(readHead(this.#rest.subarray(0, end).toString('utf8')));
    this.#rest = this.#rest.subarray(end + 4);
    this.#state = 'body';
    return true;
  }

  async #body(): Promise<boolean> {
    const at = this.#rest.indexOf(this.#delimiter);
    if (at === -1) {
      // Keeps bytes that may be the beginning of a delimiter until the following bytes arrive.
      const sure = this.#rest.length - this.#delimiter.length + 1;
      if (sure <= 0) return false;
      const bytes = this.#rest.subarray(0, sure);
      this.#rest = this.#rest.subarray(sure);
      await this.#sink?.add(bytes);
      return false;
    }
    const bytes = this.#rest.subarray(0, at);
    this.#rest = this.#rest.subarray(at + this.#delimiter.length);
    this.#state = 'delimiter';
    if (bytes.length > 0) await this.#sink?.add(bytes);
    await this.#sink?.end();
    this.#sink = null;
    return true;
  }
}

/**
 * Returns a parameter of a part's Content-Disposition. Browsers and undici write quotes and line ends of names as
 * `%22`, `%0D` and `%0A`; other clients escape quotes.
 */
function parameterOf(disposition: string, parameter: string): string | null {
  const found = new RegExp(`;\\s*${parameter}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]+))`, 'i').exec(disposition);
  if (found === null) return null;
  return (found[1]?.replaceAll(/\\(["\\])/g, '$1') ?? found[2] ?? '').replaceAll('%22', '"');
}

function readHead(text: string): PartHead {
  const line = text.split('\r\n').find((one) => /^content-disposition:/i.test(one)) ?? '';
  const name = parameterOf(line, 'name');
  if (!/^content-disposition:\s*form-data\s*;/i.test(line) || name === null) {
    throw wrongBody('has a part without a name');
  }
  return { name, filename: parameterOf(line, 'filename') };
}
