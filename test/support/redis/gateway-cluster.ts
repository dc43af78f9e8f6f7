import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { chatBody, eventually, externalFile, writeEngines, type Body } from '#test/inference/inference-gateway.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { freePort } from '#test/free-port.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { runMark } from '#test/guardian.ts';

/** Gateways as processes of their own, with one Redis, one PostgreSQL and one engine among them. */

export const adminKey = 'sk-test-admin-0123456789abcdef0123456789abcdef';
const repository = new URL('../../../', import.meta.url).pathname;

export interface GatewayProcess {
  readonly url: string;
  readonly pid: number;
  readonly child: ChildProcess;
  /** Ended by SIGTERM, or by another signal. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
  output(): string;
}

export interface Cluster {
  readonly redis: TestRedis;
  readonly database: TestDatabase;
  readonly sql: postgres.Sql;
  readonly gateways: readonly GatewayProcess[];
  readonly engineUrl: string;
  start(more?: Readonly<Record<string, string>>): Promise<GatewayProcess>;
  /** Asks gateway `which` with a key. */
  ask(which: number, path: string, options?: AskOptions): Promise<Response>;
  chat(which: number, key: string, fields?: object, signal?: AbortSignal): Promise<Response>;
  key(limits?: object, owner?: string): Promise<{ id: string; secret: string }>;
  /** Made at gateway `which`, the first where it is not said. */
  organization(usd: string, which?: number): Promise<{ id: string; key: string }>;
  /**
   * The result of something while Redis answers every gateway; it is done again where one of them took it for silent, as
   * on a machine that is busy.
   */
  undisturbed<T>(run: () => Promise<T>): Promise<T>;
  stop(): Promise<void>;
}

export interface AskOptions {
  readonly method?: string;
  readonly body?: unknown;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface ClusterOptions {
  readonly count: number;
  readonly env?: Readonly<Record<string, string>>;
  /** The line of the engine's file. */
  readonly pricing?: string;
  /** A Redis that is there already; one of the cluster's own otherwise. */
  readonly redis?: TestRedis;
}

function exited(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((resolve) => child.once('exit', (code) => resolve(code)));
}

/** Starts a program of the repository and waits for a text in its output; an early end is an error with the output. */
async function launch(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  ready: RegExp,
): Promise<{ child: ChildProcess; match: RegExpExecArray; output: () => string }> {
  const child = spawn(process.execPath, args, {
    cwd: repository,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...runMark(), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  const match = await new Promise<RegExpExecArray>((resolve, reject) => {
    const read = (bytes: Buffer): void => {
      text += bytes.toString();
      const found = ready.exec(text);
      if (found !== null) resolve(found);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.once('exit', (code) => reject(new Error(`ended with ${code}: ${text}`)));
  });
  return { child, match, output: () => text };
}

const undisturbedTriesMax = 20;

const count = (gateways: readonly GatewayProcess[], words: string): number =>
  gateways.reduce((sum, gateway) => sum + gateway.output().split(words).length - 1, 0);
const countSilences = (gateways: readonly GatewayProcess[]): number => count(gateways, 'Redis outage: ');
const countReturns = (gateways: readonly GatewayProcess[]): number => count(gateways, 'Redis outage ended');

function startRealRedis(): Promise<TestRedis> {
  const program = findRedisServer();
  if (program === null) throw new Error('this suite needs a Redis server');
  return startServer(program);
}

/** On a busy machine nothing is spooled by chance: what an answer cost is in the books when it has come. */
const patient = { HEADGATE_SPOOL_AFTER_MS: '60000' };

/** A gateway as a process of its own, with nothing but this environment. */
export async function startGatewayProcess(env: Readonly<Record<string, string>>): Promise<GatewayProcess> {
  const { child, match, output } = await launch(['src/programs/start.js'], { ...patient, ...env }, /listens on (\S+)/);
  return {
    url: match[1] ?? '',
    pid: child.pid ?? 0,
    child,
    output,
    end(signal = 'SIGTERM') {
      child.kill(signal);
      return exited(child);
    },
  };
}

async function startEngine(): Promise<{ url: string; child: ChildProcess }> {
  const port = await freePort();
  const flags = ['--enable-force-include-usage', '--enable-request-id-headers', '--dev-mode', '--max-num-seqs', '2000'];
  const args = [
    'engines/standin/standin.js',
    '--host',
    '127.0.0.1',
    '--port',
    String(port),
    '--max-model-len',
    '8192',
    '--served-model-name',
    'chat',
  ];
  const { child } = await launch([...args, ...flags], {}, /running on|startup complete/i);
  return { url: `http://127.0.0.1:${port}`, child };
}

export async function startCluster({ count, env = {}, pricing, redis: given }: ClusterOptions): Promise<Cluster> {
  const redis = given ?? (await startRealRedis());
  const database = await createTestDatabase();
  const sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  const engine = await startEngine();
  const enginesDir = writeEngines({
    chat: externalFile(
      'chat',
      engine.url,
      pricing === undefined ? {} : { priced: false, lines: [pricing, 'kind: vllm'] },
    ),
  });
  const gateways: GatewayProcess[] = [];
  const folders = [enginesDir];

  async function start(more: Readonly<Record<string, string>> = {}): Promise<GatewayProcess> {
    const dataDir = mkdtempSync(join(tmpdir(), 'hg-redis-'));
    folders.push(dataDir);
    const all = {
      PORT: '0',
      DATABASE_URL: database.url,
      REDIS_URL: redis.url,
      LOG_LEVEL: 'warn',
      HEADGATE_DATA_DIR: dataDir,
      HEADGATE_ENGINES_DIR: enginesDir,
      HEADGATE_BOOTSTRAP_KEY: adminKey,
      HEADGATE_MAX_ACTIVE_KEYS: '1000',
      HEADGATE_DATABASE_POOL: '4',
      ...env,
      ...more,
    };
    const gateway = await startGatewayProcess(all);
    gateways.push(gateway);
    return gateway;
  }

  for (let index = 0; index < count; index += 1) await start();

  const ask = (which: number, path: string, options: AskOptions = {}): Promise<Response> => {
    const { body, key = adminKey, method = body === undefined ? 'GET' : 'POST', signal } = options;
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...options.headers };
    const url = new URL(path, gateways[which]?.url);
    const text = body === undefined ? null : JSON.stringify(body);
    return fetch(url, { method, headers, body: text, ...(signal === undefined ? {} : { signal }) });
  };
  const made = async (path: string, body: object, key = adminKey, which = 0): Promise<Body> => {
    const answer = await ask(which, path, { body, key });
    const value: Body = await answer.json();
    if (!answer.ok) throw new Error(JSON.stringify(value));
    return value;
  };
  return {
    redis,
    database,
    sql,
    gateways,
    engineUrl: engine.url,
    start,
    ask,
    chat: (which, key, fields = {}, signal) =>
      ask(which, '/v1/chat/completions', { body: chatBody(fields), key, ...(signal === undefined ? {} : { signal }) }),
    key: (limits = {}, owner = adminKey) =>
      made('/v1/keys', { name: 'test', requests_per_minute: null, max_concurrency: null, ...limits }, owner),
    async organization(usd, which = 0) {
      const name = `Organization ${Math.random()}`;
      const { id, management_key: key } = await made('/v1/organizations', { name }, adminKey, which);
      const credit = { organization_id: id, amount: usd, reference: 'opening' };
      await made('/v1/wallet/credits', credit, adminKey, which);
      return { id, key };
    },
    async undisturbed(run) {
      const untilDecided = (): Promise<unknown> =>
        eventually(async () => countSilences(gateways) === countReturns(gateways));
      for (let time = 1; ; time += 1) {
        // A silence before or after a run would disturb this one or the next.
        await untilDecided();
        const before = countSilences(gateways);
        const result = await run();
        await untilDecided();
        if (countSilences(gateways) === before) return result;
        if (time === undisturbedTriesMax) throw new Error('Redis is not heard of for long enough on this machine');
      }
    },
    async stop() {
      await Promise.all(gateways.map((gateway) => gateway.end('SIGKILL')));
      engine.child.kill('SIGKILL');
      await exited(engine.child);
      await sql.end();
      await database.drop();
      if (given === undefined) await redis.stop();
      for (const folder of folders) rmSync(folder, { recursive: true, force: true });
    },
  };
}
