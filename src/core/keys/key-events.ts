import type { Log } from '#base/log.ts';

/** A key that was changed or revoked here; other gateways may hold it as it was. */
export interface KeyChange {
  readonly organizationId: string;
  readonly keyId: string;
  readonly revoked: boolean;
}

export type ChangeListener = (change: KeyChange) => Promise<void>;

export interface KeyEvents {
  /** Who carries changes to other gateways; a change is answered when they are done. */
  readonly onChanged: (listener: ChangeListener) => void;
  readonly broadcast: (change: KeyChange) => Promise<void>;
  readonly listen: (listener: (keyId: string) => void) => () => void;
  readonly notify: (keyId: string) => void;
}

/** Who wants to know at once that a key was revoked. A listener that fails does not keep it from the others. */
export function createKeyEvents(log: Log): KeyEvents {
  const listeners = new Set<(keyId: string) => void>();
  const spreaders: ChangeListener[] = [];
  return {
    onChanged(listener) {
      spreaders.push(listener);
    },
    async broadcast(change) {
      const done = await Promise.allSettled(spreaders.map((listener) => listener(change)));
      for (const result of done) {
        if (result.status === 'rejected')
          log.error({ err: result.reason as unknown }, 'a change of a key was not told');
      }
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    notify(keyId) {
      for (const listener of listeners) {
        try {
          listener(keyId);
        } catch (error) {
          log.error({ err: error }, 'a listener for changes of keys failed');
        }
      }
    },
  };
}
