import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ConfigError } from '#base/config-error.ts';
import { defaultDataDir, lockDataDir, readDatabaseCommandConfig } from '#base/config/config.ts';
import {
  connectDb,
  type Db,
  isUnknownSchema,
  type StatementLimits,
  describeConnectionFailure,
} from '#base/database/database.ts';
import { createLog } from '#base/log.ts';
import { findEmbeddedPostgres, startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import { createKeyRing, type KeyRing } from '#core/secrets/secrets.ts';

/** Limit of one statement: a sort of all records may send nothing for hours. */
const statementTimeoutMs = 24 * 3_600_000;
const limits: StatementLimits = {
  lockTimeoutMs: 5000,
  statementTimeoutMs,
  idleInTransactionTimeoutMs: statementTimeoutMs,
};

/** The database that the gateway of an environment uses. */
export interface GatewayDatabase {
  readonly db: Db;
  /** The variable that names the database. */
  readonly variable: 'DATABASE_URL' | 'HEADGATE_DATA_DIR';
  /** The data folder of the gateway of this environment. */
  readonly dataDir: string;
  readonly ring: KeyRing;
  readonly backupPassphrase: string | null;
}

/** Behavior of a command while a gateway runs on the data folder, and where the folder has no database yet. */
export interface DatabaseUse {
  /** Uses the built-in PostgreSQL of a running gateway; absent or false: a ConfigError. */
  readonly whileRunning?: boolean;
  /** Creates a database in a folder that has none; absent or false: a ConfigError. */
  readonly make?: boolean;
}

/**
 * Runs a function on the database that the gateway of this environment would use, without a gateway. The built-in
 * PostgreSQL is started for the function and stopped again.
 * @throws ConfigError when the database cannot be read: a gateway runs on the folder without `whileRunning`, there is
 *   no database, or the database is of another version
 */
export async function withGatewayDatabase<T>(
  use: DatabaseUse,
  run: (database: GatewayDatabase) => Promise<T>,
): Promise<T> {
  const { databaseUrl, ...config } = readDatabaseCommandConfig();
  const dataDir = config.dataDir ?? defaultDataDir(config.environment, process.geteuid?.());
  const { platformKeys, backupPassphrase } = config;
  const place = { dataDir, ring: createKeyRing(platformKeys, dataDir), backupPassphrase };
  if (databaseUrl !== null) return readWith(databaseUrl, { variable: 'DATABASE_URL', ...place }, run);
  const builtIn = { variable: 'HEADGATE_DATA_DIR', ...place } as const;
  const postgres = join(dataDir, 'postgres');
  if (use.make !== true && !existsSync(join(postgres, 'cluster', 'PG_VERSION'))) {
    throw new ConfigError(
      `HEADGATE_DATA_DIR: ${dataDir} contains no database of a gateway; set the folder of a gateway, or set DATABASE_URL.`,
    );
  }
  const taken = await takeServer(dataDir, postgres, use);
  if ('url' in taken) return readWith(taken.url, builtIn, run);
  try {
    const server = await startEmbeddedPostgres({ dataDir: postgres, log: createLog('silent') });
    try {
      return await readWith(server.url, builtIn, run);
    } finally {
      await server.stop();
    }
  } finally {
    taken.release();
  }
}

/** Milliseconds to wait for a server: a starting or stopping gateway locks the folder while its server is unusable. */
const serverWaitMs = 60_000;
const serverPollMs = 250;

/** Locks the folder, or finds the server of the gateway that has locked it. @throws ConfigError if neither works */
async function takeServer(
  dataDir: string,
  postgres: string,
  { whileRunning = false }: DatabaseUse,
): Promise<{ readonly release: () => void } | { readonly url: string }> {
  const untilMs = performance.now() + serverWaitMs;
  for (;;) {
    try {
      return { release: lockDataDir(dataDir) };
    } catch (error) {
      if (!whileRunning || !(error instanceof ConfigError)) throw error;
      const url = await findEmbeddedPostgres(postgres);
      if (url !== null) return { url };
      if (performance.now() > untilMs) throw error;
    }
    await sleep(serverPollMs);
  }
}

const signals = ['SIGINT', 'SIGTERM'] as const;

async function readWith<T>(
  url: string,
  place: Omit<GatewayDatabase, 'db'>,
  run: (database: GatewayDatabase) => Promise<T>,
): Promise<T> {
  const { variable } = place;
  const db = connectDb(url, { poolMax: 1, purpose: 'command', limits });
  let isInterrupted = false;
  // Ends the connection, so that the transaction is rolled back and the cleanup runs: files that were begun are
  // removed, and a server that was started for the command is stopped.
  const interrupt = (): void => {
    isInterrupted = true;
    void db.sql.end({ timeout: 0 });
  };
  for (const signal of signals) process.on(signal, interrupt);
  try {
    return await run({ db, ...place });
  } catch (error) {
    if (isInterrupted) throw new ConfigError('interrupted before the command was done.', error);
    if (isUnknownSchema(error)) {
      const message = 'the database has no tables of this version; start a gateway of this version on it first.';
      throw new ConfigError(`${variable}: ${message}`, error);
    }
    const reason = describeConnectionFailure(error);
    if (reason === null) throw error;
    throw new ConfigError(`${variable}: the database cannot be read (${reason}).`, error);
  } finally {
    for (const signal of signals) process.off(signal, interrupt);
    await db.close();
  }
}
