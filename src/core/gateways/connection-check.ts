import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { LiveGateway } from './differences.ts';

export interface ConnectionCheckOptions {
  readonly db: Pick<Db, 'sql'>;
  readonly gateways: { readLive(): Promise<readonly LiveGateway[]> };
  /** Maximum connections of this gateway's pools; the other gateways are assumed to have the same pools. */
  readonly pooled: number;
  readonly log: Pick<Log, 'warn'>;
}

/** Connections of a gateway outside its pools: two for records and charges, and one for leases of jobs. */
const unpooled = 3;

/**
 * Creates a check that logs a warning if the live gateways may open more connections than PostgreSQL allows, once for
 * each larger number of gateways. This is not an error: there may be a pooler in front of PostgreSQL.
 */
export function createConnectionCheck({ db, gateways, pooled, log }: ConnectionCheckOptions): () => Promise<void> {
  let warnedOf = 0;
  return async () => {
    const { length: count } = await gateways.readLive();
    const wanted = count * (pooled + unpooled);
    const [row] = await db.sql<{ allowed: number }[]>`
      select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as allowed`;
    if (row === undefined || row.allowed >= wanted) {
      warnedOf = 0;
      return;
    }
    if (count <= warnedOf) return;
    warnedOf = count;
    log.warn(
      { gateways: count, wanted, allowed: row.allowed },
      'PostgreSQL allows fewer connections (max_connections) than the gateways of this database may open: lower ' +
        'HEADGATE_DATABASE_POOL or HEADGATE_REPORTS_POOL, or raise max_connections',
    );
  };
}
