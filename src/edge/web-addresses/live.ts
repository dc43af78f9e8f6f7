import type { Exposure, Holder } from '#core/web-addresses/web-addresses.ts';

/** One request or websocket to an application. */
export interface LiveConnection {
  readonly holder: Holder | null;
  readonly isLong: () => boolean;
  /** Ends the connection on both sides immediately. */
  readonly destroy: () => void;
}

export interface LiveBounds {
  readonly perAddressMax: number;
  /** Limit for all addresses together. */
  readonly totalMax: number;
}

/** Open connections by address, so that they can be ended at once. */
export class LiveConnections {
  readonly #byInstallation = new Map<string, Map<LiveConnection, Exposure>>();
  readonly #bounds: LiveBounds;
  #total = 0;
  #changes = 0;

  constructor(bounds: LiveBounds) {
    this.#bounds = bounds;
  }

  /**
   * Grows with each call that ends connections. A request that was admitted meanwhile is checked again: the call did
   * not find its connection to end.
   */
  get changes(): number {
    return this.#changes;
  }

  /** @returns false if the address, or all addresses together, are at their limit */
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

  /** Lists the holders of open connections with the address, each once. */
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

  /** Number of requests that will end by themselves soon. */
  get short(): number {
    return this.#all().filter((connection) => !connection.isLong()).length;
  }

  #all(): LiveConnection[] {
    return [...this.#byInstallation.values()].flatMap((open) => [...open.keys()]);
  }
}
