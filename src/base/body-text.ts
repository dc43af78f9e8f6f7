/** A body as latin1, one character for each byte: a string, or a large one as the bytes that it came in. */
export interface BodyText {
  readonly length: number;
  slice(start: number, end: number): string;
}

/** From this size on a body stays bytes: a string is copied for every use of it. */
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
