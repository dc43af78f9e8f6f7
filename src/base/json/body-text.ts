/** A body as latin1, one character per byte: a string, or the received bytes of a large body. */
export interface BodyText {
  readonly length: number;
  slice(start: number, end: number): string;
}

/** A large body that stays bytes, because a string would be copied for every use. */
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
