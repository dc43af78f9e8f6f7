import type { ContainerRunners, Runner } from '#core/runs/runner/runner.ts';

/** Where runs are: Docker hosts, and this machine. */
export interface Places {
  /** Those that answer: runs that are there can be gone on with. */
  reachable(): Promise<readonly Runner[]>;
  /** Where the next run goes; null: nowhere. */
  next(load: ReadonlyMap<string, number>): Promise<Runner | null>;
  /** A run could not go on there. */
  doubt(place: string): void;
  /** Whether runs may have left something: a folder, or what is known to the hosts of containers alone. */
  mayHaveLeft(): boolean;
  close(): void;
}

export interface PlacesOptions {
  /** Of this machine; null where nothing here can run Terraform. Asked for when there is something to run. */
  readonly runner: () => Promise<Runner | null>;
  /** They come before this machine. Null: there are none. */
  readonly containers: ContainerRunners | null;
  /** Whether folders of runs are on this machine, for which something is to be done although nothing waits. */
  readonly hasFolders: () => boolean;
}

/** This machine's runner is looked for where no container can be had, or where there are runs from before. */
export function createPlaces({ runner, containers, hasFolders }: PlacesOptions): Places {
  return {
    async reachable() {
      const hosts = (await containers?.reachable()) ?? [];
      const local = hosts.length === 0 || hasFolders() ? await runner() : null;
      return local === null ? hosts : [...hosts, local];
    },
    next: async (load) => (await containers?.next(load)) ?? runner(),
    doubt: (place) => containers?.doubt(place),
    mayHaveLeft: () => containers !== null || hasFolders(),
    close: () => containers?.close(),
  };
}
