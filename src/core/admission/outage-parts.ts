/** So many parts of earlier outages are kept, as many as words of Redis are remembered. */
const formerMax = 10_000;

/**
 * This gateway's parts of what there is, by name. A part of an earlier outage goes on in this one unless Redis has said
 * since what is left: were that divided again, more would be given in the end than there is, however short the outages.
 */
export class OutageParts<Part> {
  readonly #current = new Map<string, Part>();
  readonly #former: Map<string, Part>;

  /**
   * @param before of the outage before this one
   * @param isHeard whether Redis has spoken of a name since that one was over
   */
  constructor(before: OutageParts<Part> | null, isHeard: (name: string) => boolean) {
    const former = before === null ? [] : [...before.#former, ...before.#current];
    this.#former = new Map(former.filter(([name]) => !isHeard(name)).slice(-formerMax));
  }

  /** A part that serves in this outage. */
  get(name: string): Part | undefined {
    return this.#current.get(name);
  }

  /** Finds the part of this outage or, if there is none, of an earlier one, so that a settled request updates either. */
  find(name: string): Part | undefined {
    return this.#current.get(name) ?? this.#former.get(name);
  }

  /** Has the part of an earlier outage serve in this one. @returns undefined where there is none */
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

  /** Those that serve in this outage, with their names. */
  all(): readonly (readonly [string, Part])[] {
    return [...this.#current];
  }
}
