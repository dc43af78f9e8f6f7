import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { makeDataDir } from '#base/config/data-dir.ts';
import { migrateDb } from '#base/database/migrations.ts';
import { createLog } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import { findScratch } from '#test/scratch.ts';
import type { Home } from './gateway-process.ts';

let made: Promise<string> | null = null;

/** Makes a built-in PostgreSQL with all tables, once for all files of a test process. @returns its folder */
async function makePostgres(): Promise<string> {
  const dir = mkdtempSync(join(findScratch().dir, 'hg-postgres-'));
  chmodSync(dir, 0o711);
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  const dataDir = join(dir, 'postgres');
  const server = await startEmbeddedPostgres({ dataDir, log: createLog('silent'), fsync: false });
  await migrateDb(server.url);
  await server.stop();
  return dataDir;
}

/** Copies a built-in PostgreSQL with all tables and no rows to a new folder: a tenth of the work of setting one up. */
export async function copyPostgres(dataDir: string): Promise<void> {
  made ??= makePostgres();
  execFileSync('cp', ['-a', await made, dataDir]);
}

/** Gives a home a built-in PostgreSQL that its gateway finds, for tests in which no gateway must set one up. */
export async function addPostgres({ dataDir }: Home): Promise<void> {
  makeDataDir(dataDir);
  await copyPostgres(join(dataDir, 'postgres'));
}
