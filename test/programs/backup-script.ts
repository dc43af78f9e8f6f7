import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { migrateDb } from '#base/database/migrations.ts';
import { withServer } from '#test/database.ts';
import { type PostgresServer, startPostgresServer } from '#test/postgres-server.ts';

/** backup.sh beside a PostgreSQL server of this machine's packages, with a folder of dumps for each test. */
export interface BackupScript {
  readonly server: PostgresServer;
  readonly path: string;
  /** Folder of the dumps. */
  readonly folder: string;
  readonly passwordFile: string;
  /** Names of the files in the folder that end in .dump. */
  dumps(): string[];
  /** Environment of the service "backup" on a database. */
  env(database: string): Record<string, string>;
  /** Runs the script. @returns its exit code, and what it printed */
  run(database: string, ...words: string[]): Promise<Outcome>;
  /** Runs a line of a shell in which "$0" is the script. */
  shell(database: string, line: string): Promise<Outcome>;
  /** Creates a database without tables. @returns its name */
  emptyDatabase(name: string): Promise<string>;
  /** Creates a database with all tables. @returns its name */
  newDatabase(name: string): Promise<string>;
  /** Runs statements on a database. @returns rows of the last one */
  query(database: string, ...statements: string[]): Promise<readonly Row[]>;
}

export interface Outcome {
  readonly code: number;
  readonly text: string;
}

export type Row = Readonly<Record<string, unknown>>;

const path = new URL('../../compose/backup/backup.sh', import.meta.url).pathname;
const exec = promisify(execFile);

export function useBackupScript(): BackupScript {
  let server: PostgresServer;
  let folder = '';
  const folders: string[] = [];
  beforeAll(async () => {
    server = await startPostgresServer();
  });
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'hg-backups-'));
    folders.push(folder);
    writeFileSync(join(folder, 'password'), server.password);
  });
  afterAll(async () => {
    await server?.stop();
    for (const each of folders) rmSync(each, { recursive: true });
  });

  const env = (database: string): Record<string, string> => ({
    ...server.env,
    PGDATABASE: database,
    BACKUP_FOLDER: folder,
    BACKUP_FAILED_MARK: join(folder, 'failed'),
    BACKUP_RETRY_SECONDS: '1',
    POSTGRES_PASSWORD_FILE: join(folder, 'password'),
  });

  async function sh(database: string, ...args: string[]): Promise<Outcome> {
    try {
      const { stdout, stderr } = await exec('/bin/sh', args, { env: env(database) });
      return { code: 0, text: stdout + stderr };
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { code, text: stdout + stderr };
    }
  }

  async function emptyDatabase(name: string): Promise<string> {
    await withServer(server.url('postgres'), (sql) => sql.unsafe(`create database ${name}`));
    return name;
  }

  return {
    get server() {
      return server;
    },
    path,
    get folder() {
      return folder;
    },
    get passwordFile() {
      return join(folder, 'password');
    },
    dumps: () => readdirSync(folder).filter((name) => name.endsWith('.dump')),
    env,
    run: (database, ...words) => sh(database, path, ...words),
    shell: (database, line) => sh(database, '-c', line, path),
    emptyDatabase,
    async newDatabase(name) {
      await emptyDatabase(name);
      await migrateDb(server.url(name));
      return name;
    },
    async query(database, ...statements) {
      let rows: readonly Row[] = [];
      await withServer(server.url(database), async (sql) => {
        for (const statement of statements) rows = await sql.unsafe(statement);
      });
      return rows;
    },
  };
}
