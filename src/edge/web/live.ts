import type { Exposure, Holder } from '#core/exposures/exposures.ts';

/** One request or websocket that an application is being asked. */
export interface LiveConnection {
  readonly holder: Holder | null;
  readonly isLong: () => boolean;
  /** Ends it on both sides, whatever is under way. */
  readonly destroy: () => void;
}

/** Everything that is open at each address, so that it can be ended at once. */
export class LiveConnections {
  readonly #byInstallation = new Map<string, Set<LiveConnection>>();
  readonly #max: number;

  /** @param max of one address */
  constructor(max: number) {
    this.#max = max;
  }

  /** @returns false where the address has as many as it may */
  add({ installationId }: Exposure, connection: LiveConnection): boolean {
    const open = this.#byInstallation.get(installationId) ?? new Set();
    if (open.size >= this.#max) return false;
    this.#byInstallation.set(installationId, open.add(connection));
    return true;
  }

  remove({ installationId }: Exposure, connection: LiveConnection): void {
    const open = this.#byInstallation.get(installationId);
    open?.delete(connection);
    if (open?.size === 0) this.#byInstallation.delete(installationId);
  }

  cut({ installationId }: Exposure): void {
    for (const connection of this.#byInstallation.get(installationId) ?? []) connection.destroy();
  }

  cutHeldBy(isMeant: (holder: Holder) => boolean): void {
    for (const connection of this.#all()) {
      if (connection.holder !== null && isMeant(connection.holder)) connection.destroy();
    }
  }

  cutAll(): void {
    for (const connection of this.#all()) connection.destroy();
  }

  /** Requests that will end by themselves soon. */
  get short(): number {
    return this.#all().filter((connection) => !connection.isLong()).length;
  }

  #all(): LiveConnection[] {
    return [...this.#byInstallation.values()].flatMap((open) => [...open]);
  }
}
