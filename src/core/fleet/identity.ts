import { createHmac, randomBytes } from 'node:crypto';
import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';

/** Values of a fleet that all gateways of one database share. */
export interface FleetIdentity {
  /**
   * Distinguishes this installation's containers from another's on the same host; not secret. 16 hexadecimal digits.
   */
  readonly fleetId: string;
  /** Source of the replicas' API keys; 64 hexadecimal digits. Never log. */
  readonly fleetSecret: string;
  /** Source of the salts that keep organizations apart in engines; base64url. Never log. */
  readonly cacheSecret: string;
  /** Source of the keys of engines that runs start on clusters; base64url. Never log. */
  readonly clusterEngineSecret: string;
}

const purpose = 'replicas';
const secretBytes = 32;

/** Reads the secret that the first start on this database generated; several gateways may start at once. */
export async function readFleetIdentity({ sql }: Pick<Db, 'sql'>): Promise<FleetIdentity> {
  const made = randomBytes(secretBytes).toString('hex');
  await sql`insert into fleet_secrets (purpose, secret) values (${purpose}, ${made}) on conflict do nothing`;
  const [row] = await sql<{ secret: string }[]>`select secret from fleet_secrets where purpose = ${purpose}`;
  if (row === undefined) throw new Error('the secret of the fleet was removed while it was being read');
  const { secret: fleetSecret } = row;
  const derived = (what: string): Buffer => createHmac('sha256', fleetSecret).update(what).digest();
  return {
    fleetId: derived('fleet id').toString('hex').slice(0, 16),
    fleetSecret,
    cacheSecret: derived('cache salts').toString('base64url'),
    clusterEngineSecret: derived('engines of clusters').toString('base64url'),
  };
}

/**
 * Makes the next start generate a new identity. A copied database then neither adopts nor stops the containers of the
 * original, which keeps running.
 */
export async function forgetFleetIdentity(sql: ISql): Promise<void> {
  await sql`delete from fleet_secrets where purpose = ${purpose}`;
}
