import { execFileSync, spawn } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { postgresBin } from './compose.ts';
import { freePort } from './free-port.ts';

/** A PostgreSQL of this machine's packages, which brings pg_dump and psql of its own version. */
export interface PostgresServer {
  readonly port: number;
  /** Password of the role headgate, a superuser as in the compose files. */
  readonly password: string;
  /** URL of a database for the role headgate. */
  url(database: string, password?: string): string;
  /** Environment of psql and pg_dump, except for the password. */
  readonly env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

/** PostgreSQL refuses to run as root. */
const nobody = process.geteuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/** Starts an empty server that accepts only connections with a password. */
export async function startPostgresServer(): Promise<PostgresServer> {
  const bin = postgresBin();
  if (bin === null) throw new Error('there is no PostgreSQL server under /usr/lib/postgresql');
  const folder = mkdtempSync('/tmp/headgate-pg-');
  const data = join(folder, 'data');
  const passwordFile = join(folder, 'password');
  const password = 'first-password';
  mkdirSync(data);
  writeFileSync(passwordFile, `${password}\n`);
  if (nobody.uid !== undefined) for (const path of [folder, data, passwordFile]) chownSync(path, 65_534, 65_534);
  const init = ['--username=headgate', `--pwfile=${passwordFile}`, '--auth=scram-sha-256', '--encoding=UTF8'];
  execFileSync(join(bin, 'initdb'), ['-D', data, '--no-locale', '--no-sync', ...init], { ...nobody, stdio: 'pipe' });
  const port = await freePort();
  const settings = ['-c', 'fsync=off', '-c', 'listen_addresses=127.0.0.1', '-k', folder];
  const server = spawn(join(bin, 'postgres'), ['-D', data, '-p', String(port), ...settings], {
    ...nobody,
    stdio: 'ignore',
  });
  const exited = new Promise<void>((resolve) => void server.once('exit', () => resolve()));
  const env = { PGHOST: '127.0.0.1', PGPORT: String(port), PGUSER: 'headgate', PATH: `${bin}:${process.env['PATH']}` };
  await untilReady(join(bin, 'pg_isready'), env);
  return {
    port,
    password,
    env,
    url: (database, given = password) => `postgres://headgate:${given}@127.0.0.1:${port}/${database}`,
    async stop() {
      server.kill('SIGINT');
      await exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilReady(program: string, env: Readonly<Record<string, string>>): Promise<void> {
  for (;;) {
    try {
      execFileSync(program, [], { env, stdio: 'pipe' });
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
