import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, statfsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ConfigError } from '#base/config-error.ts';
import { type Config, defaultDataDir, findIdleSettings, readConfig } from '#base/config/config.ts';
import {
  compareMigrations,
  connectDb,
  NewerDatabaseError,
  readTime,
  describeConnectionFailure,
  isDiskFull,
} from '#base/database/database.ts';
import { createLog } from '#base/log.ts';
import { findClosedFolder, findEmbeddedPostgres } from '#base/postgres/postgres.ts';
import { connectRedis } from '#base/redis/redis.ts';
import { formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';
import { askRunner } from '#core/runs/runs.ts';
import { runnerSearchOf } from '#app/app.ts';
import { runsGateway } from './runtime.js';

/** Checks of `headgate doctor`. They create, change and start nothing. */

export interface Finding {
  /** `note`: not ideal, or not used; does not keep a gateway from its work. */
  readonly state: 'ok' | 'note' | 'wrong';
  readonly message: string;
  /** Next step for the operator. */
  readonly next?: string;
}

export const ok = (message: string): Finding => ({ state: 'ok', message });
export const note = (message: string, next?: string): Finding => ({
  state: 'note',
  message,
  ...(next !== undefined && { next }),
});
export const wrong = (message: string, next: string): Finding => ({ state: 'wrong', message, next });

export interface Place {
  readonly config: Config | null;
  readonly finding: Finding;
}

export function readPlace(): Place {
  try {
    const config = readConfig();
    const idle = findIdleSettings(config);
    if (idle.length > 0) return { config, finding: note(idle.join('; ')) };
    return { config, finding: ok('all settings are valid') };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return {
      config: null,
      finding: wrong(
        error.message,
        'correct the setting in the environment of the gateway; compose/settings.md lists all settings',
      ),
    };
  }
}

export function checkNode(): Finding {
  const { node } = process.versions;
  if (runsGateway()) return ok(`Node ${node}`);
  return wrong(
    `Node ${node} is too old for a gateway, which requires 24.7`,
    '"npm ci" installs Node 24, and "npm start" uses it',
  );
}

export const dataDirOf = ({ process: { dataDir }, environment }: Config): string =>
  resolve(dataDir ?? defaultDataDir(environment, process.geteuid?.()));

/** Returns the path, or its nearest parent that exists. */
function existing(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : existing(dirname(path));
}

export function checkDataDir(config: Config): Finding {
  const dir = dataDirOf(config);
  const there = existing(dir);
  try {
    accessSync(there, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch {
    return wrong(
      `this user cannot write ${there}`,
      `chown it to the gateway's user, or set another folder in HEADGATE_DATA_DIR`,
    );
  }
  const closed = config.database.url === null ? findClosedFolder(existing(join(dir, 'postgres'))) : null;
  if (closed !== null) {
    return wrong(
      `PostgreSQL runs as "nobody" when the gateway runs as root, and cannot enter ${closed}`,
      `chmod o+x ${closed}, or set another folder in HEADGATE_DATA_DIR`,
    );
  }
  return there === dir ? ok(dir) : note(`${dir} does not exist yet; the first start creates it`);
}

const gibibyte = 2 ** 30;
const freeMin = gibibyte;
const freeGood = 5 * gibibyte;

export function checkDisk(config: Config): Finding {
  const folder = existing(dataDirOf(config));
  const { bavail, bsize, blocks } = statfsSync(folder);
  const free = bavail * bsize;
  const gib = (bytes: number): string => (bytes / gibibyte).toFixed(1);
  const message = `${gib(free)} of ${gib(blocks * bsize)} GiB are free for ${folder}`;
  if (free < freeMin) return wrong(message, 'free disk space: below 1 GiB the database may reject usage');
  return free < freeGood ? note(message, 'free disk space before less than 1 GiB is left') : ok(message);
}

export const patience = { lockTimeoutMs: 5000, statementTimeoutMs: 10_000, idleInTransactionTimeoutMs: 10_000 };

/** Returns the URL of the database of this environment; null if the built-in one does not exist or does not run. */
export async function findDatabaseUrl(config: Config): Promise<string | null> {
  const folder = join(dataDirOf(config), 'postgres');
  const isMade = existsSync(join(folder, 'cluster', 'PG_VERSION'));
  return config.database.url ?? (isMade ? findEmbeddedPostgres(folder) : null);
}

const clockGoodMs = 1000;
const versionMin = 150_000;

/** Checks PostgreSQL, and compares its clock to this machine's. */
export async function checkDatabase(config: Config): Promise<readonly Finding[]> {
  const given = config.database.url;
  const folder = join(dataDirOf(config), 'postgres');
  const variable = given === null ? 'HEADGATE_DATA_DIR' : 'DATABASE_URL';
  const isMade = existsSync(join(folder, 'cluster', 'PG_VERSION'));
  if (given === null && !isMade) return [note('built in; the first start creates the database')];
  const url = await findDatabaseUrl(config);
  if (url === null) return [ok('built in; not running, "npm start" starts it')];
  const db = connectDb(url, { poolMax: 1, purpose: 'command', limits: patience });
  try {
    const [row] = await db.sql<{ number: number; version: string }[]>`
      select current_setting('server_version_num')::int as number, current_setting('server_version') as version`;
    const { number, version } = row ?? { number: 0, version: '?' };
    const kind = given === null ? 'built in' : 'DATABASE_URL';
    if (number < versionMin) return [wrong(`PostgreSQL ${version} is too old`, 'use version 15 or newer')];
    return [ok(`PostgreSQL ${version} answers (${kind})${await stateOf(db)}`), await compareClocks(() => readTime(db))];
  } catch (error) {
    if (error instanceof NewerDatabaseError) return [wrong(`${variable}: ${error.what}`, error.remedy)];
    const why = describeConnectionFailure(error) ?? (error instanceof Error ? error.message : String(error));
    const next = isDiskFull(error)
      ? 'free disk space where PostgreSQL keeps its data'
      : 'check that it runs, and check address, name and password';
    return [wrong(`${variable}: the database cannot be used (${why})`, next)];
  } finally {
    await db.close();
  }
}

type Sql = ReturnType<typeof connectDb>['sql'];

/** @throws NewerDatabaseError */
async function stateOf({ sql }: { readonly sql: Sql }): Promise<string> {
  const { missing, isNew } = await compareMigrations(sql);
  if (isNew) return '; the first start of a gateway creates its tables';
  return missing.length === 0 ? '' : `; the next start migrates it to this version (${missing.length} steps)`;
}

async function compareClocks(askTime: () => Promise<number>): Promise<Finding> {
  const beforeMs = Date.now();
  const theirsMs = await askTime();
  const afterMs = Date.now();
  const apartMs = Math.max(beforeMs - theirsMs, theirsMs - afterMs, 0);
  if (apartMs <= clockGoodMs) return ok("clock: within a second of PostgreSQL's");
  return wrong(
    `clock: ${Math.round(apartMs / 1000)} s off PostgreSQL's`,
    'set both machines by NTP: limits, expiries and bills depend on the time',
  );
}

/** Checks that the machine follows a time server, where timedatectl can report it. */
export async function checkClock(): Promise<Finding> {
  const year = new Date().getUTCFullYear();
  if (year < 2026) return wrong(`this machine's time is ${new Date().toISOString()}`, 'set the clock of this machine');
  const answer = await ask('timedatectl', ['show', '--property=NTPSynchronized', '--value']);
  if (answer === null)
    return note(
      'unknown whether this machine follows a time server (no timedatectl)',
      'make sure that it does: limits, expiries and bills depend on the time',
    );
  if (answer.trim() === 'yes') return ok('follows a time server');
  return note('does not follow a time server', '"timedatectl set-ntp true", or chrony');
}

const run = promisify(execFile);
const askTimeoutMs = 20_000;

/** Returns the output of a program; null if the program is missing or fails. */
async function ask(program: string, args: readonly string[]): Promise<string | null> {
  try {
    const { stdout } = await run(program, [...args], { timeout: askTimeoutMs });
    return stdout;
  } catch {
    return null;
  }
}

export async function checkRedis({ redis, process: { workers } }: Config): Promise<Finding> {
  if (redis.url === null)
    return note(`not set (REDIS_URL): fine for one gateway${workers > 1 ? ', not for several' : ''}`);
  const connecting = connectRedis(redis.url, createLog('silent'));
  try {
    const store = await connecting;
    try {
      const info = String(await store.command('INFO', 'server'));
      return ok(`answers (${/^(?:redis|valkey)_version:(\S+)/m.exec(info)?.[1] ?? 'version unknown'})`);
    } finally {
      store.close();
    }
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const why = cause instanceof Error ? cause.message : String(cause);
    return wrong(`REDIS_URL: Redis cannot be used (${why})`, 'check that it runs, and check address and password');
  }
}

export function enginesDirOf({ engines }: Config): string {
  return resolve(engines.dir ?? fileURLToPath(new URL('../../engines', import.meta.url)));
}

export function readEngines(config: Config) {
  return loadEngineFiles(enginesDirOf(config), { env: config.environment });
}

export function checkEngineFiles(config: Config): readonly Finding[] {
  const read = readEngines(config);
  const how = 'correct the file; "headgate engines validate" checks it again';
  if (!read.ok) return read.problems.map((problem) => wrong(formatEngineFileProblem(problem), how));
  const enabled = read.engines.filter((one) => one.enabled);
  const message = `${enabled.length} of ${read.engines.length} in ${enginesDirOf(config)} are enabled`;
  if (enabled.length === 0) return [note(message, 'add an engine file, such as one of engines/examples')];
  const lost = enabled.flatMap(({ id, driver }) => {
    const [program = ''] = driver.type === 'process' ? driver.command : [];
    if (program === '' || isProgram(program, config)) return [];
    return [wrong(`${id}: its program ${program} is not on the PATH`, 'install it, or give its full path')];
  });
  return [ok(message), ...lost];
}

function isProgram(name: string, { environment }: Config): boolean {
  // A path is relative to the folder above the engine files; `node` comes with the gateway.
  if (name.includes('/') || name === 'node') return true;
  return (environment['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, name)));
}

export async function checkGpus(config: Config): Promise<Finding> {
  const read = readEngines(config);
  const needing = read.ok
    ? read.engines.filter(({ enabled, driver }) => enabled && driver.type === 'process' && driver.gpus !== null)
    : [];
  const listed = await ask('nvidia-smi', ['--query-gpu=name,memory.total', '--format=csv,noheader']);
  const gpus = (listed ?? '').split('\n').filter((line) => line.trim() !== '');
  if (gpus.length > 0)
    return ok(`${gpus.length} on this machine: ${[...new Set(gpus.map((line) => line.trim()))].join('; ')}`);
  if (needing.length === 0) return note('none on this machine, and no process engine needs one');
  const names = needing.map(({ id }) => id).join(', ');
  return wrong(
    `nvidia-smi finds no GPU on this machine, and ${names} need GPUs`,
    "install NVIDIA's driver, or give these engines a host with GPUs",
  );
}

/** Checks the runner of stacks on this machine and its sandbox, by trying each. */
export async function checkRunner(config: Config): Promise<readonly Finding[]> {
  const { platform } = config;
  const { walls, terraform, problem } = await askRunner(runnerSearchOf(platform, dataDirOf(config)));
  const image = platform.containerRuns?.image ?? null;
  const containers = image === null ? [] : [note(`runs use containers of ${image} first (HEADGATE_RUNS_IMAGE)`)];
  if (walls === null) {
    const isAskedFor = platform.terraformBin !== null || platform.localRuns.required.length > 0;
    const found = terraform === null ? '' : `${terraform.product} ${terraform.version} (${terraform.path}); `;
    const none = `${found}runner: none: ${problem}`;
    const next = 'until then, this machine lists stacks but cannot apply them';
    return [...containers, isAskedFor && image === null ? wrong(none, next) : note(none, next)];
  }
  const { kind, openNetwork, openMemory, sentence } = walls;
  const program = ok(`${terraform.product} ${terraform.version} (${terraform.path})`);
  const next = [
    kind === 'process' ? 'install bubblewrap (Debian: apt-get install bubblewrap)' : null,
    openNetwork === null
      ? null
      : `let unprivileged users create namespaces, and keep HEADGATE_RUNS_EGRESS at cluster: until then runs reach every address that this machine reaches; HEADGATE_RUNS_REQUIRE=network rejects them`,
    openMemory === null
      ? null
      : 'let the gateway create control groups; HEADGATE_RUNS_REQUIRE=memory rejects runs until then',
  ].filter((step) => step !== null);
  const runner = `runner: ${sentence}`;
  return [...containers, program, next.length === 0 ? ok(runner) : note(runner, next.join('; '))];
}
