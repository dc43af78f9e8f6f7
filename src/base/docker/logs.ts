import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

/**
 * The output of a container as the Engine API sends it: frames of 8 bytes (stream, three zeros, length, big endian)
 * and so many bytes of text. https://docs.docker.com/reference/api/engine/ (attach).
 */

const headerBytes = 8;
/** Characters after which a line without an end is cut. */
const lineCharsMax = 65_536;

/** https://docs.docker.com/reference/api/engine/ calls them stream types. */
export const stderrStream = 2;

/** Returns the text of a whole answer: both streams in the order in which they came, or one stream. */
export function demultiplex(output: Buffer, stream: number | null = null): string {
  const parts: Buffer[] = [];
  let at = 0;
  while (at + headerBytes <= output.length) {
    const end = at + headerBytes + output.readUInt32BE(at + 4);
    if (stream === null || output[at] === stream) parts.push(output.subarray(at + headerBytes, end));
    at = end;
  }
  return Buffer.concat(parts).toString('utf8');
}

/** Yields the bytes of both streams in the order in which they came, without their frames. */
export async function* readLogBytes(stream: Readable): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (let frame = takeFrame(rest); frame !== null; frame = takeFrame(rest)) {
      rest = frame.rest;
      yield frame.bytes;
    }
  }
}

/** Yields the lines of both streams, never mixed; ends with the container, or without an error with the signal. */
export async function* readLogLines(stream: Readable, signal: AbortSignal): AsyncGenerator<string> {
  const cutters = new Map<number, LineCutter>();
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      for (let frame = takeFrame(rest); frame !== null; frame = takeFrame(rest)) {
        rest = frame.rest;
        const cutter = cutters.get(frame.source) ?? new LineCutter();
        cutters.set(frame.source, cutter);
        yield* cutter.take(frame.bytes);
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  for (const cutter of cutters.values()) yield* cutter.end();
}

/** Returns the first frame; null while it is incomplete. */
function takeFrame(output: Buffer): { source: number; bytes: Buffer; rest: Buffer } | null {
  if (output.length < headerBytes) return null;
  const end = headerBytes + output.readUInt32BE(4);
  if (output.length < end) return null;
  return { source: output.readUInt8(0), bytes: output.subarray(headerBytes, end), rest: output.subarray(end) };
}

class LineCutter {
  readonly #decoder = new StringDecoder('utf8');
  #text = '';

  take(bytes: Buffer): string[] {
    this.#text += this.#decoder.write(bytes);
    const lines = this.#text.split('\n');
    this.#text = lines.pop() ?? '';
    if (this.#text.length > lineCharsMax) {
      lines.push(this.#text);
      this.#text = '';
    }
    return lines.map(withoutReturn);
  }

  end(): string[] {
    const last = this.#text + this.#decoder.end();
    this.#text = '';
    return last === '' ? [] : [withoutReturn(last)];
  }
}

function withoutReturn(line: string): string {
  return line.endsWith('\r') ? line.slice(0, -1) : line;
}
