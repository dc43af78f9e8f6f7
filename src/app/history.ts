import type { Clock } from '#base/clock.ts';
import type { DatabaseConfig, ProcessConfig } from '#base/config.ts';
import { connectDb, type Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import { createHistory, type History } from '#core/metering/metering.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import type { Part } from './parts.ts';

export interface HistoryParts {
  readonly config: { readonly database: DatabaseConfig; readonly process: Pick<ProcessConfig, 'workers'> };
  readonly databaseUrl: string;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly log: Log;
}

/** What callers read of the past, on connections that serve nothing else: no report takes one away from a request. */
export function openHistory(parts: HistoryParts): { readonly history: History; readonly part: Part } {
  const { config, databaseUrl, clock, audit } = parts;
  const { reportsPoolMax: poolMax, reportTimeoutMs } = config.database;
  const limits = { lockTimeoutMs: null, statementTimeoutMs: reportTimeoutMs, idleInTransactionTimeoutMs: 60_000 };
  const db = connectDb(databaseUrl, { purpose: 'reports', poolMax, limits });
  const wallet = createWallet({ db, clock, audit });
  const history = createHistory({ db, wallet, connections: poolMax, waitMsMax: reportTimeoutMs });
  return { history, part: { name: 'reports', start: () => warnOfConnections(db, parts), stop: () => db.close() } };
}

/** Beside those with a setting: two for the books, and one for leases of jobs. */
const otherConnections = 3;

/** The server may have a pooler in front of it, and other gateways beside this one: it is a warning. */
async function warnOfConnections({ sql }: Db, { config, log }: HistoryParts): Promise<void> {
  const { poolMax, reportsPoolMax } = config.database;
  const wanted = config.process.workers * (poolMax + reportsPoolMax + otherConnections);
  const [row] = await sql<{ allowed: number }[]>`
    select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as allowed`;
  if (row === undefined || row.allowed >= wanted) return;
  log.warn(
    { wanted, allowed: row.allowed },
    'PostgreSQL allows fewer connections (max_connections) than the gateways of this machine may make: lower ' +
      'HEADGATE_DATABASE_POOL or HEADGATE_REPORTS_POOL, or raise max_connections',
  );
}
