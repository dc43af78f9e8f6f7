import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError, readBooksConfig } from '#base/config.ts';
import { defaultDataDir, lockDataDir } from '#base/data-dir.ts';
import { connectDb, type Db, sqlStateOf, whyUnusable } from '#base/db.ts';
import { createLog } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres/postgres.ts';

/** A sort of all records may be silent for long. */
const statementTimeoutMs = 24 * 3_600_000;
const limits = { lockTimeoutMs: 5000, statementTimeoutMs, idleInTransactionTimeoutMs: statementTimeoutMs };

/**
 * Works on the database that the gateway of this environment would use, without a gateway; the built-in PostgreSQL is
 * started for it and stopped again.
 * @throws ConfigError where it cannot be read: a gateway runs on the folder, it is not there, or it is another version's
 */
export async function withBooks<T>(run: (db: Db) => Promise<T>): Promise<T> {
  const { databaseUrl, dataDir, environment } = readBooksConfig();
  if (databaseUrl !== null) return readWith(databaseUrl, 'DATABASE_URL', run);
  const folder = dataDir ?? defaultDataDir(environment, process.geteuid?.());
  const postgres = join(folder, 'postgres');
  if (!existsSync(join(postgres, 'cluster', 'PG_VERSION'))) {
    throw new ConfigError(
      `HEADGATE_DATA_DIR: there is no database of a gateway in ${folder}; name its folder, or set DATABASE_URL.`,
    );
  }
  const release = lockDataDir(folder);
  try {
    const server = await startEmbeddedPostgres({ dataDir: postgres, log: createLog('silent') });
    try {
      return await readWith(server.url, 'HEADGATE_DATA_DIR', run);
    } finally {
      await server.stop();
    }
  } finally {
    release();
  }
}

/** No such table, no such column. */
const unknownSchema = ['42P01', '42703'];

async function readWith<T>(url: string, variable: string, run: (db: Db) => Promise<T>): Promise<T> {
  const db = connectDb(url, { poolMax: 1, purpose: 'command', limits });
  try {
    return await run(db);
  } catch (error) {
    if (unknownSchema.includes(sqlStateOf(error) ?? '')) {
      const message = 'the database has no books of this version; start a gateway of this version on it first.';
      throw new ConfigError(`${variable}: ${message}`, error);
    }
    const reason = whyUnusable(error);
    if (reason === null) throw error;
    throw new ConfigError(`${variable}: the database cannot be read (${reason}).`, error);
  } finally {
    await db.close();
  }
}
