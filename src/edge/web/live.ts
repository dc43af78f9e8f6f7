import type { Exposure, Holder } from '#core/exposures/exposures.ts';

/** One request or websocket that an application is being asked. */
export interface LiveConnection {
  readonly holder: Holder | null;
  readonly isLong: () => boolean;
  /** Ends it on both sides, whatever is under way. */
  readonly destroy: () => void;
}

export interface LiveBounds {
  readonly perAddressMax: number;
  /** Of all addresses together. */
  readonly totalMax: number;
}

/** Everything that is open at each address, so that it can be ended at once. */
export class LiveConnections {
  readonly #byInstallation = new Map<string, Map<LiveConnection, Exposure>>();
  readonly #bounds: LiveBounds;
  #total = 0;
  #changes = 0;

  constructor(bounds: LiveBounds) {
    this.#bounds = bounds;
  }

  /**
   * Grows with everything that ends connections. Who was let in while it grew is asked again: what ended others found
   * nothing of his to end.
   */
  get changes(): number {
    return this.#changes;
  }

  /** @returns false where the address, or all of them, have as many as they may */
  add(exposure: Exposure, connection: LiveConnection): boolean {
    const { perAddressMax, totalMax } = this.#bounds;
    const known = this.#byInstallation.get(exposure.installationId) ?? new Map<LiveConnection, Exposure>();
    if (known.size >= perAddressMax || this.#total >= totalMax) return false;
    this.#byInstallation.set(exposure.installationId, known.set(connection, exposure));
    this.#total += 1;
    return true;
  }

  remove({ installationId }: Exposure, connection: LiveConnection): void {
    const open = this.#byInstallation.get(installationId);
    if (open?.delete(connection) === true) this.#total -= 1;
    if (open?.size === 0) this.#byInstallation.delete(installationId);
  }

  cut({ installationId }: Exposure): void {
    this.#changes += 1;
    for (const connection of this.#byInstallation.get(installationId)?.keys() ?? []) connection.destroy();
  }

  cutHeldBy(isMeant: (holder: Holder) => boolean): void {
    this.#changes += 1;
    for (const connection of this.#all()) {
      if (connection.holder !== null && isMeant(connection.holder)) connection.destroy();
    }
  }

  /** Who has something open, and where; each once. */
  held(): readonly { readonly exposure: Exposure; readonly holder: Holder }[] {
    const found = new Map<string, { readonly exposure: Exposure; readonly holder: Holder }>();
    for (const open of this.#byInstallation.values()) {
      for (const [{ holder }, exposure] of open) {
        if (holder !== null) found.set(JSON.stringify([exposure.installationId, holder]), { exposure, holder });
      }
    }
    return [...found.values()];
  }

  cutAll(): void {
    for (const connection of this.#all()) connection.destroy();
  }

  /** Requests that will end by themselves soon. */
  get short(): number {
    return this.#all().filter((connection) => !connection.isLong()).length;
  }

  #all(): LiveConnection[] {
    return [...this.#byInstallation.values()].flatMap((open) => [...open.keys()]);
  }
}
