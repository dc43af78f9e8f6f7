import type { Log } from '#base/log.ts';

/** A key that this gateway changed or revoked; other gateways may still have the old row. */
export interface KeyChange {
  readonly organizationId: string;
  readonly keyId: string;
  readonly revoked: boolean;
}

/** A secret that is rejected from now on, although its key stays active. */
export interface SecretEnd {
  readonly keyId: string;
  /** SHA-256 of the secret. */
  readonly secretHash: Buffer;
}

export type SecretListener = (end: SecretEnd) => void;

/** An organization whose keys are rejected from now on: suspended, or closed permanently. */
export interface OrganizationStop {
  readonly organizationId: string;
  readonly status: 'suspended' | 'closed';
}

export type StopListener = (stop: OrganizationStop) => void;

export type OrganizationListener = (organizationId: string) => Promise<void>;

export type ChangeListener = (change: KeyChange) => Promise<void>;

export interface KeyEvents {
  /** Registers a listener that notifies other gateways; a change is answered when all these listeners are done. */
  readonly onChanged: (listener: ChangeListener) => void;
  readonly broadcast: (change: KeyChange) => Promise<void>;
  readonly listen: (listener: (keyId: string) => void) => () => void;
  readonly notify: (keyId: string) => void;
  /** Registers a listener for former secrets that were ended permanently. */
  readonly listenSecrets: (listener: SecretListener) => () => void;
  readonly notifySecret: (end: SecretEnd) => void;
  /** Registers a listener that notifies other gateways of a changed organization. */
  readonly onOrganizationChanged: (listener: OrganizationListener) => void;
  readonly broadcastOrganization: (organizationId: string) => Promise<void>;
  readonly listenStops: (listener: StopListener) => () => void;
  readonly notifyStop: (stop: OrganizationStop) => void;
}

/** Notifies listeners of changed and revoked keys. A failing listener does not keep the event from the others. */
export function createKeyEvents(log: Log): KeyEvents {
  const keys = createListeners<string>(log);
  const secrets = createListeners<SecretEnd>(log);
  const stops = createListeners<OrganizationStop>(log);
  const keyChanges = createBroadcast<KeyChange>(log);
  const organizationChanges = createBroadcast<string>(log);
  return {
    onChanged: keyChanges.on,
    broadcast: keyChanges.send,
    listen: keys.listen,
    notify: keys.notify,
    listenSecrets: secrets.listen,
    notifySecret: secrets.notify,
    onOrganizationChanged: organizationChanges.on,
    broadcastOrganization: organizationChanges.send,
    listenStops: stops.listen,
    notifyStop: stops.notify,
  };
}

function createBroadcast<T>(log: Log) {
  const listeners: ((change: T) => Promise<void>)[] = [];
  return {
    on: (listener: (change: T) => Promise<void>): void => void listeners.push(listener),
    send: async (change: T): Promise<void> => {
      const done = await Promise.allSettled(listeners.map((listener) => listener(change)));
      for (const result of done) {
        if (result.status === 'rejected')
          log.error(
            { err: result.reason as unknown },
            'not all gateways confirmed the change of a key or organization; the others read it from PostgreSQL within two seconds',
          );
      }
    },
  };
}

function createListeners<T>(log: Log) {
  const listeners = new Set<(event: T) => void>();
  return {
    listen: (listener: (event: T) => void): (() => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    notify: (event: T): void => {
      for (const listener of listeners) {
        try {
          listener(event);
        } catch (error) {
          log.error(
            { err: error },
            'a key was revoked or an organization stopped, and an error kept the gateway from ending some of the running requests; new requests are rejected',
          );
        }
      }
    },
  };
}
