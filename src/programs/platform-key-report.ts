import type { KeyState } from '#core/secrets/secrets.ts';
import { type Finding, note, ok, wrong } from './doctor-checks.ts';

/** Keys of this machine, to which the platform key of a database is compared. */
export interface KeyPlace {
  /** Place of the keys on this machine, as the key ring names it. */
  readonly place: string;
  readonly hasPassphrase: boolean;
}

export function reportKey({ id, isHere, isCarried }: KeyState, { place, hasPassphrase }: KeyPlace): Finding {
  if (isHere && isCarried) return ok(`${id} in ${place}, which backups carry, sealed by HEADGATE_BACKUP_PASSPHRASE`);
  if (isHere) {
    const next = hasPassphrase
      ? 'start the gateway: it seals a copy into the database within a minute'
      : `set HEADGATE_BACKUP_PASSPHRASE, or copy ${place} to where your backups are not`;
    return note(
      `${id} in ${place}; backups do not carry the key, and what it encrypts cannot be read without it`,
      next,
    );
  }
  const missing = `the database was encrypted with the platform key ${id}, which ${place} lacks: runs and webhooks wait`;
  if (!isCarried)
    return wrong(missing, `put the platform key of the old machine into ${place}; see compose/operations.md`);
  return wrong(
    missing,
    hasPassphrase
      ? 'start the gateway: HEADGATE_BACKUP_PASSPHRASE opens the copy in the database, if it is the one that sealed the copy'
      : `set the HEADGATE_BACKUP_PASSPHRASE of the old machine and start the gateway, or put its platform key into ${place}`,
  );
}
