import { createHmac, randomBytes } from 'node:crypto';
import type { ISql } from 'postgres';
import type { Db } from '#base/db.ts';

/** What all gateways of one database share of a fleet. */
export interface FleetIdentity {
  /** Tells this installation's containers from another's on the same host; no secret. 16 hexadecimal digits. */
  readonly fleetId: string;
  /** What the API keys of replicas are derived from; 64 hexadecimal digits. Never to be logged. */
  readonly fleetSecret: string;
  /** What the salts are derived from that keep organizations apart in engines; base64url. Never to be logged. */
  readonly cacheSecret: string;
}

const purpose = 'replicas';
const secretBytes = 32;

/** Reads what the first start on this database made up; several may start at once. */
export async function readFleetIdentity({ sql }: Pick<Db, 'sql'>): Promise<FleetIdentity> {
  const made = randomBytes(secretBytes).toString('hex');
  await sql`insert into fleet_secrets (purpose, secret) values (${purpose}, ${made}) on conflict do nothing`;
  const [row] = await sql<{ secret: string }[]>`select secret from fleet_secrets where purpose = ${purpose}`;
  if (row === undefined) throw new Error('the secret of the fleet was removed while it was read');
  const { secret: fleetSecret } = row;
  const derived = (what: string): Buffer => createHmac('sha256', fleetSecret).update(what).digest();
  return {
    fleetId: derived('fleet id').toString('hex').slice(0, 16),
    fleetSecret,
    cacheSecret: derived('cache salts').toString('base64url'),
  };
}

/**
 * Has the next start make up another one: containers of a database that this one is a copy of, and that goes on, are
 * neither taken over from here nor stopped.
 */
export async function forgetFleetIdentity(sql: ISql): Promise<void> {
  await sql`delete from fleet_secrets where purpose = ${purpose}`;
}
