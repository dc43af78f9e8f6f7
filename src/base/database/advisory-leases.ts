import type { Sql } from 'postgres';
import type { Db } from './connect-database.ts';

/** Leases of a database, each of one holder at a time. */
export interface Leases {
  /**
   * Takes or renews a lease. The lease lasts for `idleMs` after the last call for any lease, and ends with the process.
   * A holder that calls later than that may have lost the lease: work under a lease must tolerate a second worker.
   *
   * @returns false while somebody else holds it
   * @throws when Postgres cannot be asked
   */
  take(name: string): Promise<boolean>;
  /** Gives all leases back; the next `take` begins anew. */
  close(): Promise<void>;
}

export interface LeasesOptions {
  readonly db: Pick<Db, 'session'>;
  /** In milliseconds. */
  readonly idleMs?: number;
}

const defaultIdleMs = 180_000;

/**
 * Advisory locks of one session, on a connection beside the pool: a holder may keep its lease for as long as it likes,
 * and a job that runs under it needs the pool's connections. No table and no clock is needed: Postgres gives a lease
 * free as soon as the connection of a killed process is closed, and `idle_session_timeout` ends the session of one
 * that is frozen or out of reach.
 */
export function createLeases({ db, idleMs = defaultIdleMs }: LeasesOptions): Leases {
  let session: Sql | null = null;
  return {
    async take(name) {
      session ??= db.session();
      // Set each time: the session may be new. PostgreSQL 13 lacks the setting, and a frozen holder keeps its lease.
      const [row] = await session<{ mine: boolean }[]>`
        select pg_try_advisory_lock(hashtext('headgate lease'), hashtext(${name})) as mine,
          (select set_config(name, ${String(idleMs)}, false) from pg_settings where name = 'idle_session_timeout')`;
      return row?.mine === true;
    },
    async close() {
      const open = session;
      session = null;
      await open?.end({ timeout: 5 });
    },
  };
}
