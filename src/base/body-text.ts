/** A body as latin1, one character for each byte: a string, or a large one as the bytes that it came in. */
export interface BodyText {
  readonly length: number;
  slice(start: number, end: number): string;
}

/** A string of megabytes is copied for every use of it; bytes are not. */
export class LargeText implements BodyText {
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get length(): number {
    return this.bytes.length;
  }

  slice(start: number, end: number): string {
    return this.bytes.toString('latin1', start, end);
  }
}
