import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { startApp, type App } from '#app/app.ts';
import { readDockerHosts } from '#app/engines.ts';
import { readSecretFiles } from '#base/config/files.ts';
import { parseConfig } from '#base/config/read-config.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createEngineFolder, formatEngineFileProblem } from '#core/catalog/catalog.ts';
import { createTestDatabase } from './database.ts';

/** A whole gateway in this process: a listening port, its own database, its own engines as child processes. */
export interface TestGateway {
  readonly url: string;
  /** The address of its metrics; null unless HEADGATE_METRICS_PORT is set. */
  readonly metricsUrl: string | null;
  /** Secret of a management key of a platform admin, with 10 USD of credit. */
  readonly key: string;
  readonly db: Db;
  readonly databaseUrl: string;
  readonly logLines: readonly string[];
  /** Where it keeps what it runs, such as the records of its engines' processes. */
  readonly dataDir: string;
  request(path: string, init?: RequestOptions): Promise<Response>;
  stop(): Promise<void>;
}

export interface RequestOptions {
  readonly method?: string;
  /** Sent as JSON, unless it is a string. */
  readonly body?: unknown;
  /** Null sends no Authorization header. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface TestGatewayOptions {
  /** Environment variables of the gateway, such as HEADGATE_MAX_BODY_BYTES. */
  readonly env?: Readonly<Record<string, string>>;
  /** Folder of engine files; the shipped ones when absent. */
  readonly enginesDir?: string;
  /** Where engine processes run; the repository when absent. */
  readonly workingDirectory?: string;
  /** An existing database, which is not deleted at the end. */
  readonly databaseUrl?: string;
  /** An existing data folder, which is not deleted at the end. */
  readonly dataDir?: string;
  readonly redisUrl?: string;
  /** The first key keeps the limits that every new key has; else it has none. */
  readonly keepLimits?: boolean;
}

const repository = new URL('../../', import.meta.url).pathname;

export async function startGateway(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const own = options.databaseUrl === undefined ? await createTestDatabase() : null;
  const databaseUrl = options.databaseUrl ?? own?.url ?? '';
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'hg-')));
  const enginesDir = options.enginesDir ?? join(repository, 'engines');
  const shared = options.redisUrl === undefined ? {} : { REDIS_URL: options.redisUrl };
  // On a busy machine nothing is spooled by chance: what an answer cost is in the books when it has come.
  const patient = { HEADGATE_SPOOL_AFTER_MS: '60000' };
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, PORT: '0', ...patient, ...shared, ...options.env };
  const config = parseConfig(readSecretFiles(env));
  const logLines: string[] = [];
  const log = createLog('debug', { write: (line: string) => void logLines.push(line) });
  const engineFolder = createEngineFolder(enginesDir, { env: config.environment });
  const loaded = engineFolder.read();
  if (!loaded.ok) throw new Error(loaded.problems.map(formatEngineFileProblem).join('\n'));
  const db = connectDb(databaseUrl);
  const workingDirectory =
    options.workingDirectory ?? (options.enginesDir === undefined ? dirname(enginesDir) : repository);
  const hosts = readDockerHosts(config.docker, enginesDir);
  const files = { engines: loaded.engines, files: loaded.files, engineFolder, hosts, workingDirectory };
  const app: App = await startApp({ config, log, db, databaseUrl, dataDir, gatewayDir: dataDir, ...files });
  const key = app.bootstrap.secret ?? config.bootstrap.key ?? '';

  if (options.keepLimits !== true) await liftLimits(app.url, key);

  return {
    url: app.url,
    metricsUrl: app.metricsUrl,
    key,
    db,
    databaseUrl,
    logLines,
    dataDir,
    request(path, init = {}) {
      const body =
        init.body === undefined ? null : typeof init.body === 'string' ? init.body : JSON.stringify(init.body);
      const headers = new Headers(init.headers);
      const secret = init.key === undefined ? key : init.key;
      if (secret !== null && !headers.has('authorization')) headers.set('authorization', `Bearer ${secret}`);
      if (body !== null && !headers.has('content-type')) headers.set('content-type', 'application/json');
      const method = init.method ?? (body === null ? 'GET' : 'POST');
      return fetch(new URL(path, app.url), { method, headers, body, ...(init.signal ? { signal: init.signal } : {}) });
    },
    async stop() {
      await app.stop();
      await db.close();
      await own?.drop();
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** New keys have limits, which tests of other things would run into: takes those of an organization's keys away. */
export async function liftLimits(url: string, key: string): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const keys = (await (await fetch(new URL('/v1/keys', url), { headers })).json()) as { data: { id: string }[] };
  const body = JSON.stringify({ requests_per_minute: null, max_concurrency: null });
  for (const { id } of keys.data) {
    const patched = await fetch(new URL(`/v1/keys/${id}`, url), { method: 'PATCH', headers, body });
    if (!patched.ok) throw new Error(`the limits of the first key could not be lifted: ${await patched.text()}`);
  }
}
