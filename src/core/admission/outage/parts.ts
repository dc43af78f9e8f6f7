/** Maximum number of kept parts of earlier outages, as many as answers of Redis are remembered. */
const formerMax = 10_000;

/**
 * This gateway's parts of wallets, budgets and limits, by name. A part of an earlier outage continues in this one
 * unless Redis has reported since what is left: a second division would give more in the end than there is, however
 * short the outages.
 */
export class OutageParts<Part> {
  readonly #current = new Map<string, Part>();
  readonly #former: Map<string, Part>;

  /**
   * Keeps the parts of earlier outages that may continue.
   * @param before parts of the previous outage
   * @param isHeard true if Redis has answered about a name since that outage ended
   */
  constructor(before: OutageParts<Part> | null, isHeard: (name: string) => boolean) {
    const former = before === null ? [] : [...before.#former, ...before.#current];
    this.#former = new Map(former.filter(([name]) => !isHeard(name)).slice(-formerMax));
  }

  /** Returns a part that is in use in this outage. */
  get(name: string): Part | undefined {
    return this.#current.get(name);
  }

  /** Returns the part of this outage, or else of an earlier one, so that a settled request updates either. */
  find(name: string): Part | undefined {
    return this.#current.get(name) ?? this.#former.get(name);
  }

  /** Continues the part of an earlier outage in this one. @returns undefined if there is none */
  takeUp(name: string): Part | undefined {
    const part = this.#former.get(name);
    if (part === undefined) return undefined;
    this.#former.delete(name);
    this.#current.set(name, part);
    return part;
  }

  set(name: string, part: Part): void {
    this.#current.set(name, part);
  }

  /** Returns the parts in use in this outage, with their names. */
  all(): readonly (readonly [string, Part])[] {
    return [...this.#current];
  }
}
