import type { Log } from '#base/log.ts';

/** A key that was changed or revoked here; other gateways may hold it as it was. */
export interface KeyChange {
  readonly organizationId: string;
  readonly keyId: string;
  readonly revoked: boolean;
}

export type ChangeListener = (change: KeyChange) => Promise<void>;

export interface KeyEvents {
  /** Registers what notifies other gateways of changes; a change is answered when all of these are done. */
  readonly onChanged: (listener: ChangeListener) => void;
  readonly broadcast: (change: KeyChange) => Promise<void>;
  readonly listen: (listener: (keyId: string) => void) => () => void;
  readonly notify: (keyId: string) => void;
}

/** Notifies listeners of changed and revoked keys. One that fails does not keep the event from the others. */
export function createKeyEvents(log: Log): KeyEvents {
  const listeners = new Set<(keyId: string) => void>();
  const changeListeners: ChangeListener[] = [];
  return {
    onChanged(listener) {
      changeListeners.push(listener);
    },
    async broadcast(change) {
      const done = await Promise.allSettled(changeListeners.map((listener) => listener(change)));
      for (const result of done) {
        if (result.status === 'rejected')
          log.error(
            { err: result.reason as unknown },
            'other gateways were not notified of a changed key; they read it again within 30 seconds of use',
          );
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
          log.error({ err: error }, 'a listener for revoked keys failed; requests of the key may go on');
        }
      }
    },
  };
}
