import type { Clock } from '#base/clock.ts';
import type { DatabaseConfig } from '#base/config/config.ts';
import { connectDb } from '#base/database/database.ts';
import type { Audit } from '#core/audit/audit.ts';
import { createHistory, type History } from '#core/metering/metering.ts';
import { createWallet } from '#core/wallet/wallet.ts';
import type { Part } from './lifecycle.ts';

export interface HistoryParts {
  readonly config: { readonly database: DatabaseConfig };
  readonly databaseUrl: string;
  readonly clock: Clock;
  readonly audit: Audit;
}

/** Opens the history that callers read. Reports have connections of their own, so that requests never wait for them. */
export function openHistory(parts: HistoryParts): { readonly history: History; readonly part: Part } {
  const { config, databaseUrl, clock, audit } = parts;
  const { reportsPoolMax: poolMax, reportTimeoutMs } = config.database;
  const limits = { lockTimeoutMs: null, statementTimeoutMs: reportTimeoutMs, idleInTransactionTimeoutMs: 60_000 };
  const db = connectDb(databaseUrl, { purpose: 'reports', poolMax, limits });
  const wallet = createWallet({ db, clock, audit });
  const history = createHistory({ db, wallet, connections: poolMax, waitMsMax: reportTimeoutMs });
  return { history, part: { name: 'reports', stop: () => db.close() } };
}
