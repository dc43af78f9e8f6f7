import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeDataDir } from '#base/config/data-dir.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { type EmbeddedPostgres, type EmbeddedPostgresOptions, startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import { findPostmaster, stopPostmaster, waitUntil } from '#base/postgres/postmaster.ts';
import { findRunAs } from '#base/postgres/run-as.ts';
import { copyPostgres } from '#test/programs/built-in-postgres.ts';

let dataDir = '';
let clusterDir = '';
const children: ChildProcess[] = [];
const servers: EmbeddedPostgres[] = [];

beforeEach(() => {
  dataDir = makeDataDir(join(process.geteuid?.() === 0 ? '/tmp' : tmpdir(), `headgate-pg-${uuidv7()}`));
  clusterDir = join(dataDir, 'cluster');
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const server of servers.splice(0)) await server.stop();
  const left = await findPostmaster(clusterDir);
  if (left !== null) await stopPostmaster(left.pid, clusterDir);
  rmSync(dataDir, { recursive: true, force: true });
});

/** Starts the server on a cluster that is there already, as at every start after the first. */
async function start(options: Partial<EmbeddedPostgresOptions> = {}): Promise<EmbeddedPostgres> {
  await addCluster();
  return startFirst(options);
}

async function addCluster(): Promise<void> {
  if (existsSync(clusterDir)) return;
  rmSync(dataDir, { recursive: true });
  await copyPostgres(dataDir);
}

/** Starts the server as it is. Without fsync, for which most of these tests would only wait. */
async function startFirst(options: Partial<EmbeddedPostgresOptions> = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDir, log: createLog('silent'), fsync: false, ...options });
  servers.push(server);
  return server;
}

const starter = `
  import { createLog } from ${JSON.stringify(new URL('../../../src/base/log.ts', import.meta.url).href)};
  import { startEmbeddedPostgres } from ${JSON.stringify(new URL('../../../src/base/postgres/postgres.ts', import.meta.url).href)};
  const { url } = await startEmbeddedPostgres({ dataDir: process.argv[1], log: createLog('silent') });
  process.stdout.write(url);
  setInterval(() => undefined, 1000);
`;

/** A durable server whose process, which started it, was killed. @returns its url */
async function startAndLeave(meanwhile: (url: string) => Promise<void> = async () => undefined): Promise<string> {
  await addCluster();
  const child = spawn(process.execPath, ['--input-type=module', '-e', starter, dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const [url]: unknown[] = await once(child.stdout, 'data');
  await meanwhile(String(url));
  child.kill('SIGKILL');
  await once(child, 'exit');
  return String(url);
}

/** Runs one statement on a connection of its own. */
async function ask<Row extends object>(url: string, statement: string): Promise<Row[]> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    return await sql.unsafe<Row[]>(statement);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function postmasterPid(): Promise<number> {
  const found = await findPostmaster(clusterDir);
  if (found === null) throw new Error('no server is running');
  return found.pid;
}

async function killPostmaster(): Promise<void> {
  process.kill(await postmasterPid(), 'SIGKILL');
  await waitUntil(async () => (await findPostmaster(clusterDir)) === null, 10_000);
}

describe('an invalid setup of the built-in PostgreSQL', () => {
  it('fails the start with data of another version', async () => {
    await (await start()).stop();
    writeFileSync(join(clusterDir, 'PG_VERSION'), '17\n');
    await expect(start()).rejects.toThrow(
      /^HEADGATE_DATA_DIR: .* was written by PostgreSQL 17, but the built-in version is 18/,
    );
  });

  it('fails the start when the port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    await expect(start({ port })).rejects.toThrow(/PostgreSQL did not start: .*could not bind IPv4 address/s);
    other.close();
  });

  it('fails a connection with a wrong password, and only the owner can read the right one', async () => {
    const server = await start();
    const wrong = server.url.replace(/:[^:@]+@/, ':wrong@');
    await expect(ask(wrong, 'select 1')).rejects.toThrow(/password authentication failed/);
    expect(statSync(join(dataDir, 'postgres.password')).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(dataDir, 'postgres.password'), 'utf8').trim()).toHaveLength(32);
  });

  const rootOnly = findRunAs() === null ? [] : ['a folder that nobody can reach'];
  it.each(rootOnly)('fails the start as the user "nobody" with %s', async () => {
    const closed = join(dataDir, 'closed');
    mkdirSync(closed);
    chmodSync(closed, 0o700);
    const options = { dataDir: join(closed, 'postgres'), log: createLog('silent') };
    await expect(startEmbeddedPostgres(options)).rejects.toThrow(
      `HEADGATE_DATA_DIR: the user "nobody" cannot enter the folder ${closed}`,
    );
  });
});

describe('the built-in PostgreSQL', () => {
  it('is a UTF-8 server on loopback only, with fsync as configured', async () => {
    const server = await startFirst({ fsync: true });
    const [row] = await ask<Record<string, string>>(
      server.url,
      `select current_setting('server_encoding') as encoding, current_setting('listen_addresses') as addresses,
        current_setting('unix_socket_directories') as sockets, current_setting('fsync') as fsync,
        current_setting('synchronous_commit') as commit, current_setting('password_encryption') as passwords,
        current_database() as database, datlocprovider::text as provider, datlocale as locale
      from pg_database where datname = current_database()`,
    );
    expect(row).toEqual({
      encoding: 'UTF8',
      addresses: '127.0.0.1',
      sockets: '',
      fsync: 'on',
      commit: 'on',
      passwords: 'scram-sha-256',
      database: 'headgate',
      provider: 'b',
      locale: 'C.UTF-8',
    });
    await server.stop();
    expect(await findPostmaster(clusterDir)).toBe(null);
    await server.stop();
  });

  it('keeps its data over a stop and a start', async () => {
    const first = await start();
    await ask(first.url, 'create table kept (x int); insert into kept values (1)');
    await first.stop();
    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await ask(second.url, 'select x from kept')).toEqual([{ x: 1 }]);
  });

  it('is adopted when an earlier process left it running, not started twice, and can be stopped', async () => {
    const url = await startAndLeave();
    const pid = await postmasterPid();
    const second = await start();
    expect(second).toMatchObject({ adopted: true, url });
    expect(await postmasterPid()).toBe(pid);
    await second.stop();
    expect(await findPostmaster(clusterDir)).toBe(null);
  });

  it('starts after a kill during an open transaction, with the committed rows', async () => {
    let open: postgres.Sql | undefined;
    await startAndLeave(async (url) => {
      await ask(url, 'create table kept (x int); insert into kept values (1)');
      open = postgres(url, { max: 1, onnotice: () => undefined });
      await open.unsafe('begin; insert into kept values (2)');
    });
    await killPostmaster();
    const second = await start({ fsync: true });
    expect(second.adopted).toBe(false);
    expect(await ask(second.url, 'select x from kept')).toEqual([{ x: 1 }]);
    await open?.end({ timeout: 1 }).catch(() => undefined);
  });

  it('is not confused with another process that has its process id', async () => {
    const first = await start();
    const pidFile = join(clusterDir, 'postmaster.pid');
    const lines = readFileSync(pidFile, 'utf8').split('\n');
    await first.stop();
    const other = spawn('sleep', ['600'], { ...findRunAs(), stdio: 'ignore' });
    children.push(other);
    writeFileSync(pidFile, [other.pid, ...lines.slice(1)].join('\n'));
    expect((await start()).adopted).toBe(false);
    expect(other.exitCode).toBe(null);
  });

  it('is created again when its creation was interrupted', async () => {
    mkdirSync(join(dataDir, 'cluster.new-cut', 'cluster'), { recursive: true });
    writeFileSync(join(dataDir, 'cluster.new-cut', 'cluster', 'PG_VERSION'), '18\n');
    writeFileSync(join(dataDir, 'postgres.password'), 'of the one that was never finished\n');
    const server = await startFirst();
    expect(await ask(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect(readdirSync(dataDir).toSorted()).toEqual(['cluster', 'postgres.log', 'postgres.password']);
  });

  it('gets its database when the first start was interrupted before that', async () => {
    const server = await start();
    await ask(server.url.replace(/headgate$/, 'postgres'), 'drop database headgate');
    await server.stop();
    expect(await ask((await start()).url, 'select current_database() as name')).toEqual([{ name: 'headgate' }]);
  });

  it('has its own process group, so that Ctrl-C in a terminal does not reach it', async () => {
    await start();
    const pid = await postmasterPid();
    const listing = spawn('ps', ['-o', 'pgid=', '-p', String(pid)], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [chunk]: unknown[] = await once(listing.stdout, 'data');
    expect(Number(String(chunk).trim())).toBe(pid);
  });
});

/** Processes of a server, which outlive it for a moment when it is killed. */
function processesOf(postmaster: number): number[] {
  const rows = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n');
  return rows.flatMap((row) => {
    const [pid = 0, parent] = row.trim().split(/\s+/).map(Number);
    return parent === postmaster ? [pid] : [];
  });
}

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  expect(await waitUntil(isTrue, 120_000)).toBe(true);
}

describe('the built-in PostgreSQL that ends unexpectedly', () => {
  it.each(['SIGKILL', 'SIGQUIT', 'SIGINT'] as const)('is started again after %s', async (signal) => {
    const server = await start({ fsync: true });
    await ask(server.url, 'create table kept (x int); insert into kept values (1)');
    const pid = await postmasterPid();
    process.kill(pid, signal);
    await until(async () => (await findPostmaster(clusterDir))?.pid !== pid);
    await until(async () => (await findPostmaster(clusterDir))?.ready === true);
    expect(await ask(server.url, 'select x from kept')).toEqual([{ x: 1 }]);
  });

  it('is started only after its remaining processes have ended', async () => {
    const server = await start();
    const pid = await postmasterPid();
    const [left = 0] = processesOf(pid);
    process.kill(left, 'SIGSTOP');
    process.kill(pid, 'SIGKILL');
    const log = (): string => readFileSync(join(dataDir, 'postgres.log'), 'utf8');
    await until(() => log().includes('pre-existing shared memory block'));
    await expect(ask(server.url, 'select 1')).rejects.toThrow('ECONNREFUSED');
    process.kill(left, 'SIGCONT');
    await until(async () => (await findPostmaster(clusterDir))?.ready === true);
    expect(await ask(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  it.each([
    ['at once', () => true],
    [
      'as soon as there is a new process',
      async (old: number) => ((await findPostmaster(clusterDir))?.pid ?? old) !== old,
    ],
    ['while a process of the killed one is in the way', null],
  ])('leaves no process when it is stopped during the restart: %s', async (_, moment) => {
    const server = await start();
    const pid = await postmasterPid();
    const [left = 0] = processesOf(pid);
    if (moment === null) process.kill(left, 'SIGSTOP');
    process.kill(pid, 'SIGKILL');
    const log = (): string => readFileSync(join(dataDir, 'postgres.log'), 'utf8');
    await until(() => (moment === null ? log().includes('shared memory block') : moment(pid)));
    await server.stop();
    if (moment === null) process.kill(left, 'SIGCONT');
    await expect(ask(server.url, 'select 1')).rejects.toThrow('ECONNREFUSED');
    expect(await findPostmaster(clusterDir)).toBe(null);
    await until(() => commandsOf().every((command) => !command.includes(clusterDir)));
    expect(commandsOf().filter((command) => command.includes(clusterDir))).toEqual([]);
  });
});

function commandsOf(): string[] {
  return execFileSync('ps', ['-A', '-o', 'stat=,command='], { encoding: 'utf8' })
    .split('\n')
    .filter((row) => !row.startsWith('Z'));
}
