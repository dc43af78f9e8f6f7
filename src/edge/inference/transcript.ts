/**
 * What a client was sent of a stream, up to a bound. It is kept only for requests that leave their answer for later
 * ones; the others have none.
 */
export class Transcript {
  readonly #bytesMax: number;
  readonly #parts: string[] = [];
  #bytes = 0;
  #whole = true;

  /** @param bytesMax what comes after so many bytes is left out */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Nothing was left out. */
  get whole(): boolean {
    return this.#whole;
  }

  /** As latin1. */
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
