/** Counts running operations by name. A name without running operations takes no memory. */
export class AtOnce {
  readonly #counts = new Map<string, number>();

  /** @returns false, and counts nothing, if there are `max` already */
  enter(name: string, max: number): boolean {
    const count = this.#counts.get(name) ?? 0;
    if (count >= max) return false;
    this.#counts.set(name, count + 1);
    return true;
  }

  leave(name: string): void {
    const count = (this.#counts.get(name) ?? 0) - 1;
    if (count > 0) this.#counts.set(name, count);
    else this.#counts.delete(name);
  }
}
