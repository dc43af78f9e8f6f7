import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import postgres from 'postgres';
import { migrateDb } from '#base/database/migrations.ts';
import { findPostgresPackage, preparePostgres } from '#base/postgres/binaries.ts';
import { clusterEnvironment, clusterUser, openCluster } from '#base/postgres/cluster.ts';
import { findPostmaster, removeStalePidFile } from '#base/postgres/postmaster.ts';
import { findRunAs, type RunAs } from '#base/postgres/run-as.ts';
import { freePort } from '#test/free-port.ts';
import { endWithUs } from './tidy.ts';
import { sleep, within } from './wait.ts';

/**
 * A PostgreSQL of a row's own, which may be killed, restarted and failed over. Gateways come as a role without special
 * rights, as they should in earnest, so that an operator can take what it needs away from it.
 */
export interface ChaosPostgres {
  readonly port: number;
  /** As the gateways see it: their role, by TCP. */
  readonly url: string;
  /** The same by the unix socket. */
  readonly socketUrl: string;
  /** Connects a superuser to the same database, past every proxy. */
  readonly sql: postgres.Sql;
  readonly pid: number;
  readonly lives: boolean;
  /** PostgreSQL's own data folder. */
  readonly dataDir: string;
  start(): Promise<void>;
  /** `fast` ends it in order, `immediate` and `kill` as a crash does. */
  stop(how: 'fast' | 'immediate' | 'kill'): Promise<void>;
  /** Ends the connections of the gateways' role. */
  endConnections(): Promise<void>;
  /** A stand-by on a copy of the data, which follows; every commit waits for it from then on. */
  startStandby(): Promise<ChaosPostgres>;
  /** Has a stand-by follow no more, once it has all that its primary has; nothing waits for it from then on. */
  leaveBehind(standby: ChaosPostgres): Promise<void>;
  /** Makes a stand-by the one that takes writes. */
  promote(): Promise<void>;
  close(): Promise<void>;
}

export const gatewayRole = 'chaos';
export const gatewayPassword = 'chaos-password';
export const booksName = 'books';

const startTimeoutMs = 60_000;
const signals = { fast: 'SIGINT', immediate: 'SIGQUIT', kill: 'SIGKILL' } as const;

/** A cluster with the role, the database and all migrations, on which nothing runs: rows copy it. */
export interface PostgresTemplate {
  readonly clusterDir: string;
  readonly password: string;
  readonly binDir: string;
  readonly runAs: RunAs | null;
}

/** @param dir an empty folder that PostgreSQL's user can pass */
export async function makeTemplate(dir: string): Promise<PostgresTemplate> {
  const runAs = findRunAs();
  const found = findPostgresPackage();
  const binDir = await preparePostgres({ postgres: found, runAs, spareDir: dir });
  const cluster = await openCluster({ dataDir: dir, binDir, runAs, fsync: false }, found.serverVersion);
  const template = { clusterDir: cluster.dir, password: cluster.password, binDir, runAs };
  const server = new Server(template, { dir, clusterDir: cluster.dir, port: await freePort() });
  await server.start();
  const admin = postgres(server.operatorUrl('postgres'), { max: 1, onnotice: () => undefined });
  await admin.unsafe(`create role ${gatewayRole} login password '${gatewayPassword}'`);
  await admin.unsafe(`create database ${booksName} owner ${gatewayRole}`);
  await admin.end();
  await migrateDb(server.url);
  await server.stop('fast');
  return template;
}

/** @param dir an empty folder that PostgreSQL's user can pass */
export async function startPostgres(template: PostgresTemplate, dir: string): Promise<ChaosPostgres> {
  const clusterDir = join(dir, 'cluster');
  copyFolder(template.clusterDir, clusterDir);
  const server = new Server(template, { dir, clusterDir, port: await freePort() });
  await server.start();
  return server;
}

/** With owners and modes, which PostgreSQL insists on. */
function copyFolder(from: string, to: string): void {
  execFileSync('cp', ['-a', from, to]);
}

interface Place {
  readonly dir: string;
  readonly clusterDir: string;
  readonly port: number;
  /** Further settings, by name. */
  readonly settings?: Readonly<Record<string, string>>;
}

class Server implements ChaosPostgres {
  readonly #template: PostgresTemplate;
  readonly #place: Place;
  readonly #socketDir: string;
  #child: ChildProcess | null = null;
  #ended: Promise<void> = Promise.resolve();
  #sql: postgres.Sql | null = null;
  #standbys = 0;

  constructor(template: PostgresTemplate, place: Place) {
    this.#template = template;
    this.#place = place;
    this.#socketDir = join(place.dir, 'sockets');
    mkdirSync(this.#socketDir, { recursive: true });
    if (template.runAs !== null) chownSync(this.#socketDir, template.runAs.uid, template.runAs.gid);
  }

  get port(): number {
    return this.#place.port;
  }

  get url(): string {
    return `postgres://${gatewayRole}:${gatewayPassword}@127.0.0.1:${this.port}/${booksName}`;
  }

  get socketUrl(): string {
    const place = `host=${encodeURIComponent(this.#socketDir)}&port=${this.port}`;
    return `postgres://${gatewayRole}:${gatewayPassword}@localhost/${booksName}?${place}`;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  get lives(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  get dataDir(): string {
    return this.#place.clusterDir;
  }

  get sql(): postgres.Sql {
    this.#sql ??= postgres(this.operatorUrl(booksName), { max: 4, onnotice: () => undefined, backoff: () => 0.1 });
    return this.#sql;
  }

  operatorUrl(database: string): string {
    return `postgres://${clusterUser}:${this.#template.password}@127.0.0.1:${this.port}/${database}`;
  }

  async start(): Promise<void> {
    const untilMs = performance.now() + startTimeoutMs;
    // The last workers of a killed server keep a new one out until they notice that their parent has died.
    while (!(await this.#launch())) {
      if (performance.now() > untilMs) throw new Error(`PostgreSQL does not start: ${this.#log()}`);
      await sleep(100);
    }
  }

  async #launch(): Promise<boolean> {
    const { clusterDir, dir } = this.#place;
    await removeStalePidFile(clusterDir);
    const log = openSync(join(dir, 'postgres.log'), 'a', 0o600);
    const program = join(this.#template.binDir, 'postgres');
    const child = spawn(program, ['-D', clusterDir, ...this.#settings()], {
      ...this.#template.runAs,
      cwd: '/',
      env: clusterEnvironment,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    const leave = endWithUs(child.pid ?? 0);
    let over = false;
    this.#child = child;
    this.#ended = new Promise((resolve) => {
      child.once('exit', () => {
        over = true;
        leave();
        resolve();
      });
    });
    const ready = await within(startTimeoutMs, async () => {
      const found = await findPostmaster(clusterDir);
      return over ? 'over' : found?.pid === child.pid && found?.ready === true ? 'ready' : null;
    });
    return ready === 'ready';
  }

  /** Durable against the death of processes, not of the machine: that is what dies here. */
  #settings(): string[] {
    const values: Record<string, string> = {
      listen_addresses: '127.0.0.1',
      port: String(this.port),
      unix_socket_directories: this.#socketDir,
      max_connections: '60',
      shared_buffers: '32MB',
      max_wal_size: '256MB',
      timezone: 'UTC',
      fsync: 'off',
      synchronous_commit: 'on',
      log_min_messages: 'log',
      log_checkpoints: 'off',
      ...this.#place.settings,
    };
    return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  }

  #log(): string {
    return readFileSync(join(this.#place.dir, 'postgres.log'), 'utf8').slice(-1000);
  }

  async stop(how: 'fast' | 'immediate' | 'kill'): Promise<void> {
    await this.#disconnect();
    this.#child?.kill(signals[how]);
    await this.#ended;
  }

  async #disconnect(): Promise<void> {
    const sql = this.#sql;
    this.#sql = null;
    await sql?.end({ timeout: 0 });
  }

  async endConnections(): Promise<void> {
    await this.sql`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${gatewayRole}`;
  }

  async startStandby(): Promise<ChaosPostgres> {
    this.#standbys += 1;
    const dir = join(this.#place.dir, `standby-${this.#standbys}`);
    const clusterDir = join(dir, 'cluster');
    mkdirSync(dir);
    chmodSync(dir, 0o711);
    const { sql } = this;
    const session = await sql.reserve();
    await session`select pg_backup_start('standby', true)`;
    copyFolder(this.#place.clusterDir, clusterDir);
    const [said] = await session<{ labelfile: string }[]>`select labelfile from pg_backup_stop()`;
    session.release();
    rmSync(join(clusterDir, 'postmaster.pid'), { force: true });
    for (const [name, text] of [
      ['backup_label', said?.labelfile ?? ''],
      ['standby.signal', ''],
    ] as const) {
      writeFileSync(join(clusterDir, name), text);
      const { runAs } = this.#template;
      if (runAs !== null) chownSync(join(clusterDir, name), runAs.uid, runAs.gid);
    }
    const from = `host=127.0.0.1 port=${this.port} user=${clusterUser} password=${this.#template.password}`;
    const settings = { primary_conninfo: `${from} application_name=standby`, hot_standby: 'on' };
    const standby = new Server(this.#template, { dir, clusterDir, port: await freePort(), settings });
    await standby.start();
    await sql.unsafe(`alter system set synchronous_standby_names = 'standby'`);
    await sql`select pg_reload_conf()`;
    const isSynchronous = await within(startTimeoutMs, async () => {
      const rows = await sql`select from pg_stat_replication where sync_state = 'sync'`;
      return rows.length === 1;
    });
    if (isSynchronous === null) throw new Error('the stand-by does not follow');
    return standby;
  }

  async leaveBehind(standby: ChaosPostgres): Promise<void> {
    await this.sql.unsafe('alter system reset synchronous_standby_names');
    await this.sql`select pg_reload_conf()`;
    const [primary] = await this.sql<{ lsn: string }[]>`select pg_current_wal_lsn()::text as lsn`;
    const lsn = primary?.lsn ?? '0/0';
    const caughtUp = await within(startTimeoutMs, async () => {
      const rows = await standby.sql`select where pg_last_wal_replay_lsn() >= ${lsn}::pg_lsn`;
      return rows.length === 1;
    });
    if (caughtUp === null) throw new Error('the stand-by does not follow');
    await standby.sql.unsafe(`alter system set primary_slot_name = 'no_such_slot'`);
    await standby.sql`select pg_reload_conf()`;
    const isAlone = await within(startTimeoutMs, async () => {
      const rows = await this.sql`select from pg_stat_replication`;
      return rows.length === 0;
    });
    if (isAlone === null) throw new Error('the stand-by follows on');
  }

  async promote(): Promise<void> {
    await this.sql`select pg_promote()`;
    await this.sql.unsafe(`alter system reset synchronous_standby_names`);
    await this.sql`select pg_reload_conf()`;
  }

  async close(): Promise<void> {
    if (this.lives) await this.stop('immediate');
    else await this.#disconnect();
  }
}
