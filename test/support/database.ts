import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { inject } from 'vitest';

/** Values that the global setup hands to test files. */
export interface TestServer {
  /** Address with a role that may create databases; any database of the server. */
  readonly url: string;
  /** A database with all migrations applied, which nobody is connected to. */
  readonly template: string;
  /** True if its data lies in memory, where PostgreSQL copies a database fastest as files. */
  readonly isInMemory: boolean;
}

declare module 'vitest' {
  interface ProvidedContext {
    testServer: TestServer;
  }
}

export interface TestDatabase {
  readonly url: string;
  /** Ends its connections and removes it. Without this call it goes with the server at the end of the run. */
  drop(): Promise<void>;
}

/** A database of the caller's own with all migrations applied: one per test file, so that files run side by side. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { url, template, isInMemory } = inject('testServer');
  const name = `headgate_test_${randomBytes(8).toString('hex')}`;
  await withServer(url, (sql) => copyDatabase(sql, template, name, isInMemory ? 'file_copy' : 'wal_log'));
  return {
    url: databaseUrl(url, name),
    drop: () => withServer(url, (sql) => sql`drop database if exists ${sql(name)} with (force)`),
  };
}

const copyAttemptsMax = 20;

/** A template can be copied only while nobody, autovacuum included, is connected to it: SQLSTATE 55006. */
async function copyDatabase(sql: postgres.Sql, template: string, name: string, strategy: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await sql`create database ${sql(name)} template ${sql(template)} strategy ${sql(strategy)}`;
      return;
    } catch (error) {
      const inUse = error instanceof postgres.PostgresError && error.code === '55006';
      if (!inUse || attempt >= copyAttemptsMax) throw error;
    }
  }
}

/** Runs statements on a server's own database. */
export async function withServer(url: string, run: (sql: postgres.Sql) => PromiseLike<unknown>): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    await run(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** The URL of another database of the same server. */
export function databaseUrl(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}
