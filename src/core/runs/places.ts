import type { ContainerRunners, Runner } from '#core/runs/runner/runner.ts';

/** Places for runs: Docker hosts, and this machine. */
export interface Places {
  /** Places that answer: their runs can be resumed. */
  reachable(): Promise<readonly Runner[]>;
  /** The place for the next run; null if there is none. */
  next(load: ReadonlyMap<string, number>): Promise<Runner | null>;
  /** Reports that a run could not continue at a place. */
  doubt(place: string): void;
  /** True if runs may have left something: a folder here, or something that only the container hosts know. */
  mayHaveLeft(): boolean;
  close(): void;
}

export interface PlacesOptions {
  /** This machine's runner; null if nothing here can run Terraform. Called when there is something to run. */
  readonly runner: () => Promise<Runner | null>;
  /** Container hosts, which are tried before this machine; null if there are none. */
  readonly containers: ContainerRunners | null;
  /** True if this machine has folders of runs, which need attention even while nothing is pending. */
  readonly hasFolders: () => boolean;
}

/**
 * Creates the places. This machine's runner is searched for only if no container host is available, or if there are
 * folders of earlier runs.
 */
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
