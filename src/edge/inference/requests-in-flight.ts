import type { ApiKey, SecretEnd } from '#core/keys/keys.ts';
import type { Stop, StopControl } from './stop.ts';

/**
 * The requests that are running, so that those of a key can be ended when it is revoked, and all when we stop. Slots
 * of one array are used again: a long-lived Map or Set that entries pass through at a high rate keeps the collector
 * busy with what has long ended, and looking through all of it is only needed when something is revoked.
 */
export interface Running {
  readonly size: number;
  /** Running requests of an organization; takes time by how many run in all. */
  countOf(organizationId: string): number;
  /** @returns what takes the request out again; calls after the first do nothing */
  add(key: ApiKey, stop: StopControl): () => void;
  stopKey(keyId: string, reason: Stop): void;
  /** Those alone that came with one of its secrets. */
  stopSecret(end: SecretEnd, reason: Stop): void;
  stopOrganization(organizationId: string, reason: Stop): void;
  stopAll(reason: Stop): void;
}

interface Entry {
  readonly key: ApiKey;
  readonly stop: StopControl;
}

export function createRunning(): Running {
  const slots: (Entry | null)[] = [];
  const free: number[] = [];

  function stopWhere(wanted: (entry: Entry) => boolean, reason: Stop): void {
    for (const entry of slots) if (entry !== null && wanted(entry)) entry.stop.stop(reason);
  }

  return {
    countOf: (organizationId) =>
      slots.reduce((count, entry) => count + Number(entry?.key.organizationId === organizationId), 0),
    add(key, stop) {
      const entry = { key, stop };
      const slot = free.pop() ?? slots.length;
      slots[slot] = entry;
      return () => {
        if (slots[slot] !== entry) return;
        slots[slot] = null;
        free.push(slot);
      };
    },
    stopKey: (keyId, reason) => stopWhere(({ key }) => key.id === keyId, reason),
    stopSecret: ({ keyId, secretHash }, reason) =>
      stopWhere(({ key }) => key.id === keyId && key.secretHash?.equals(secretHash) === true, reason),
    stopOrganization: (organizationId, reason) => stopWhere(({ key }) => key.organizationId === organizationId, reason),
    stopAll: (reason) => stopWhere(() => true, reason),
    get size() {
      return slots.length - free.length;
    },
  };
}
