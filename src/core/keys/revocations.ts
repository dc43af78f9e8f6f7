import type { Log } from '#base/log.ts';

export interface Revocations {
  readonly listen: (listener: (keyId: string) => void) => () => void;
  readonly tell: (keyId: string) => void;
}

/** Who wants to know at once that a key was revoked. A listener that fails does not keep it from the others. */
export function createRevocations(log: Log): Revocations {
  const listeners = new Set<(keyId: string) => void>();
  return {
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    tell(keyId) {
      for (const listener of listeners) {
        try {
          listener(keyId);
        } catch (error) {
          log.error({ err: error }, 'a listener of revocations failed');
        }
      }
    },
  };
}
