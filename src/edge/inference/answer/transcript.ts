/**
 * Bytes of a stream that a client was sent, up to a bound. Kept only for requests whose answer is reused by later ones.
 */
export class Transcript {
  readonly #bytesMax: number;
  readonly #parts: string[] = [];
  #bytes = 0;
  #whole = true;

  /** @param bytesMax bytes beyond this number are left out */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Nothing was left out. */
  get whole(): boolean {
    return this.#whole;
  }

  /** The text as latin1. */
  get text(): string {
    return this.#parts.join('');
  }

  add(text: string): void {
    const room = this.#bytesMax - this.#bytes;
    if (text.length > room) this.#whole = false;
    if (room <= 0) return;
    this.#parts.push(text.length > room ? text.slice(0, room) : text);
    this.#bytes += Math.min(room, text.length);
  }
}
