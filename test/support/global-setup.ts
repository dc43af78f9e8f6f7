import { randomBytes } from 'node:crypto';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { lockDataDir } from '#base/config/data-dir.ts';
import { migrateDb } from '#base/database/migrations.ts';
import { createLog } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import { findPostmaster, stopPostmaster } from '#base/postgres/postmaster.ts';
import { databaseUrl, type TestServer, withServer } from './database.ts';
import { startGuardian } from './guardian.ts';
import { findScratch } from './scratch.ts';
import { shareInRun } from './share.ts';

const dirPrefix = 'headgate-test-';
const scratch = findScratch();

/**
 * One PostgreSQL for a whole run, with a template database that test files copy: the server that DATABASE_URL names,
 * otherwise the built-in one on data that is thrown away.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const guardian = await shareInRun('guardian', async () => startGuardian());
  const shared = await shareInRun('postgres', async () => {
    const server = await startServer();
    return { value: server.testServer, stop: () => server.stop() };
  });
  project.provide('testServer', shared.value);
  return async () => {
    await shared.release();
    await guardian.release();
  };
}

async function startServer(): Promise<{ testServer: TestServer; stop(): Promise<void> }> {
  const given = process.env['DATABASE_URL'] ?? '';
  const own = given === '';
  const server = own ? await startThrowAway() : { url: given, stop: async () => undefined };
  const template = `headgate_template_${randomBytes(8).toString('hex')}`;
  try {
    await withServer(server.url, (sql) => sql`create database ${sql(template)}`);
    await migrateDb(databaseUrl(server.url, template));
  } catch (error) {
    await server.stop();
    throw error;
  }
  return {
    testServer: { url: server.url, template, isInMemory: own && scratch.isMemory },
    async stop() {
      await withServer(server.url, (sql) => sql`drop database if exists ${sql(template)} with (force)`);
      await server.stop();
    },
  };
}

async function startThrowAway(): Promise<{ url: string; stop(): Promise<void> }> {
  await removeLeftOver();
  const dir = join(scratch.dir, `${dirPrefix}${randomBytes(6).toString('hex')}`);
  const release = lockDataDir(dir);
  const dataDir = join(dir, 'postgres');
  const postgres = await startEmbeddedPostgres({ dataDir, log: createLog('error'), fsync: false });
  return {
    url: postgres.url,
    async stop() {
      await postgres.stop();
      release();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Runs that were killed leave their server and data behind; the lock tells them from runs that go on. */
async function removeLeftOver(): Promise<void> {
  const names = (await readdir(scratch.dir)).filter((name) => name.startsWith(dirPrefix));
  for (const dir of names.map((name) => join(scratch.dir, name))) {
    try {
      // One this young may be between its making and its lock.
      if (Date.now() - (await stat(dir)).birthtimeMs < 10_000) continue;
      const release = lockDataDir(dir);
      const clusterDir = join(dir, 'postgres', 'cluster');
      const running = await findPostmaster(clusterDir);
      if (running !== null) await stopPostmaster(running.pid, clusterDir);
      release();
      await rm(dir, { recursive: true, force: true });
    } catch {
      // Another run's, or another user's.
    }
  }
}
