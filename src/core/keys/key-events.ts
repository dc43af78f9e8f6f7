import type { Log } from '#base/log.ts';

/** A key that was changed or revoked here; other gateways may hold it as it was. */
export interface KeyChange {
  readonly organizationId: string;
  readonly keyId: string;
  readonly revoked: boolean;
}

/** A secret that is refused from now on, though its key lives on. */
export interface SecretEnd {
  readonly keyId: string;
  /** SHA-256. */
  readonly secretHash: Buffer;
}

export type SecretListener = (end: SecretEnd) => void;

/** An organization whose keys are refused from now on: suspended, or closed for good. */
export interface OrganizationStop {
  readonly organizationId: string;
  readonly status: 'suspended' | 'closed';
}

export type StopListener = (stop: OrganizationStop) => void;

export type OrganizationListener = (organizationId: string) => Promise<void>;

export type ChangeListener = (change: KeyChange) => Promise<void>;

export interface KeyEvents {
  /** Registers what notifies other gateways of changes; a change is answered when all of these are done. */
  readonly onChanged: (listener: ChangeListener) => void;
  readonly broadcast: (change: KeyChange) => Promise<void>;
  readonly listen: (listener: (keyId: string) => void) => () => void;
  readonly notify: (keyId: string) => void;
  /** The same for former secrets that were ended for good. */
  readonly listenSecrets: (listener: SecretListener) => () => void;
  readonly notifySecret: (end: SecretEnd) => void;
  /** The same for organizations. */
  readonly onOrganizationChanged: (listener: OrganizationListener) => void;
  readonly broadcastOrganization: (organizationId: string) => Promise<void>;
  readonly listenStops: (listener: StopListener) => () => void;
  readonly notifyStop: (stop: OrganizationStop) => void;
}

/** Notifies listeners of changed and revoked keys. One that fails does not keep the event from the others. */
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
            'what follows from a changed key or organization was not done everywhere; every gateway finds the change itself within two seconds',
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
          log.error({ err: error }, 'a listener for revoked keys failed; requests of the key may go on');
        }
      }
    },
  };
}
