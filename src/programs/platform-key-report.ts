import type { KeyState } from '#core/secrets/secrets.ts';
import { type Finding, note, ok, wrong } from './doctor-checks.ts';

/** Keys of this machine, to which the platform key of a database is compared. */
export interface KeyPlace {
  /** Place of the keys on this machine, as the key ring names it. */
  readonly place: string;
  readonly hasPassphrase: boolean;
}

export function reportKey({ id, isHere, isCarried }: KeyState, { place, hasPassphrase }: KeyPlace): Finding {
  if (isHere && isCarried)
    return ok(`${id} in ${place}; backups contain it, encrypted with HEADGATE_BACKUP_PASSPHRASE`);
  if (isHere) {
    const next = hasPassphrase
      ? 'start the gateway: it stores an encrypted copy in the database within a minute'
      : `set HEADGATE_BACKUP_PASSPHRASE, or copy ${place} to a place apart from your backups`;
    return note(
      `${id} in ${place}; backups do not contain the key, and data that it encrypts is unreadable without it`,
      next,
    );
  }
  const missing = `the database was encrypted with the platform key ${id}, which is not in ${place}: runs and webhooks wait`;
  if (!isCarried)
    return wrong(missing, `put the platform key of the old machine into ${place}; see compose/operations.md`);
  return wrong(
    missing,
    hasPassphrase
      ? 'start the gateway: HEADGATE_BACKUP_PASSPHRASE decrypts the copy in the database, if it is the passphrase that encrypted it'
      : `set the HEADGATE_BACKUP_PASSPHRASE of the old machine and start the gateway, or put its platform key into ${place}`,
  );
}
