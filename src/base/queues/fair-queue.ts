/**
 * A queue that is fair among keys by cost. Each key has a virtual time, which its items advance by their cost; the key
 * with the least virtual time goes next. A key that was idle starts at the current virtual time, so that idle keys do
 * not accumulate priority.
 */
export class FairQueue<Item> {
  readonly #keys = new Map<string, KeyLine<Item>>();
  /** Virtual time at which the last item was taken. */
  #now = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** @param cost what the item is expected to cost; `correct` says later what it did */
  add(keyId: string, cost: number, item: Item): void {
    const line = this.#keys.get(keyId) ?? { time: this.#now, entries: [], running: 0 };
    if (line.entries.length === 0 && line.running === 0) line.time = Math.max(line.time, this.#now);
    line.entries.push({ cost, item });
    this.#keys.set(keyId, line);
    this.#size += 1;
  }

  /** Returns the item that `take` would return. */
  peek(): Item | null {
    return this.#next()?.entries[0]?.item ?? null;
  }

  take(): Item | null {
    const next = this.#next();
    const entry = next?.entries.shift();
    if (next === null || entry === undefined) return null;
    this.#size -= 1;
    this.#now = Math.max(this.#now, next.time);
    next.time += entry.cost;
    next.running += 1;
    return entry.item;
  }

  /** Removes an item that stopped waiting; it costs nothing. */
  remove(keyId: string, item: Item): void {
    const line = this.#keys.get(keyId);
    const at = line?.entries.findIndex((entry) => entry.item === item) ?? -1;
    if (line === undefined || at === -1) return;
    line.entries.splice(at, 1);
    this.#size -= 1;
    this.#forget(keyId, line);
  }

  /** Ends a taken item; `beyond` is its cost above the expected cost, negative if it cost less. */
  correct(keyId: string, beyond: number): void {
    const line = this.#keys.get(keyId);
    if (line === undefined) return;
    line.running -= 1;
    line.time += beyond;
    this.#forget(keyId, line);
  }

  /** Returns the line of the key that is next. */
  #next(): KeyLine<Item> | null {
    let next: KeyLine<Item> | null = null;
    for (const line of this.#keys.values()) {
      if (line.entries.length > 0 && (next === null || line.time < next.time)) next = line;
    }
    return next;
  }

  /** A key that is behind the others and does nothing would start where they are; where nothing waits, all would. */
  #forget(keyId: string, line: KeyLine<Item>): void {
    if (line.entries.length > 0 || line.running > 0) return;
    if (line.time <= this.#now || this.#size === 0) this.#keys.delete(keyId);
  }
}

interface KeyLine<Item> {
  time: number;
  readonly entries: { readonly cost: number; readonly item: Item }[];
  /** Items that were taken and have not ended. */
  running: number;
}
