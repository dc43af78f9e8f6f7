import type { Stop } from './exchange.ts';

/** The requests that are running, so that those of a key can be ended when it is revoked, and all when we stop. */
export interface Running {
  readonly size: number;
  add(keyId: string, stop: (stop: Stop) => void): () => void;
  stopKey(keyId: string, stop: Stop): void;
  stopAll(stop: Stop): void;
}

export function createRunning(): Running {
  const byKey = new Map<string, Set<(stop: Stop) => void>>();
  let size = 0;
  return {
    add(keyId, stop) {
      let stops = byKey.get(keyId);
      if (stops === undefined) byKey.set(keyId, (stops = new Set()));
      stops.add(stop);
      size += 1;
      return () => {
        if (!stops.delete(stop)) return;
        size -= 1;
        if (stops.size === 0 && byKey.get(keyId) === stops) byKey.delete(keyId);
      };
    },
    stopKey(keyId, stop) {
      for (const end of byKey.get(keyId) ?? []) end(stop);
    },
    stopAll(stop) {
      for (const stops of byKey.values()) for (const end of stops) end(stop);
    },
    get size() {
      return size;
    },
  };
}
