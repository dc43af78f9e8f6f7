import type { ApiKey, SecretEnd } from '#core/keys/keys.ts';
import type { Stop, StopControl } from '#edge/inference/answer/answer.ts';

/**
 * The running requests, so that the requests of a revoked key can be ended, and all of them when the gateway stops.
 * Slots of one array are reused: a long-lived Map or Set that entries pass through at a high rate keeps the garbage
 * collector busy with ended entries, and a search of all slots is needed only when something is revoked.
 */
export interface Running {
  readonly size: number;
  /** Counts the running requests of an organization. The time grows with all running requests. */
  countOf(organizationId: string): number;
  /** @returns a function that removes the request; calls after the first do nothing */
  add(key: ApiKey, stop: StopControl): () => void;
  stopKey(keyId: string, reason: Stop): void;
  /** Stops only the requests that came with this secret of the key. */
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
