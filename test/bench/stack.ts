import { fork, spawn, type ChildProcess } from 'node:child_process';
import { chmod, mkdtemp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { startLoader, type Loader } from './loader.ts';
import { descendants, pin } from './processes.ts';

/** Everything that the benchmark runs: the gateway with its own Postgres and engine, bare Hono, an engine, the load. */
export interface Stack {
  readonly loader: Loader;
  /** All reach the same engine over TCP. */
  readonly variants: Record<Exclude<VariantName, 'redis'>, Variant>;
  /** Null where no Redis server is available. */
  readonly redis: Variant | null;
  /** Processes of a gateway's PostgreSQL, as they are now. */
  postgresPids(variant: Variant): number[];
  readonly redisPid: number | null;
  readonly gatewayUrl: string;
  readonly authorization: string;
  /** The cores on which the proxies and everything else run; null where nothing is pinned. */
  readonly cores: { readonly proxy: number; readonly rest: number } | null;
  /** Binds processes that came since. */
  pinAll(): void;
  stop(): Promise<void>;
}

/**
 * `relay` is `node:http` with the gateway's client of engines. `redis` is a second gateway, with a database of its own,
 * that shares limits and holds through Redis.
 */
export type VariantName = 'direct' | 'bare' | 'relay' | 'gateway' | 'redis';

export interface Variant {
  readonly name: VariantName;
  readonly port: number;
  /** Process id of the server that answers. */
  readonly pid: number;
  readonly authorization: string | null;
  /** Work of V8's garbage collector until its last collection; null unless it traces it. */
  memory(): Memory | null;
}

/** Bytes since the start of a process. */
export interface Memory {
  readonly allocated: number;
  /** Bytes of objects that outlived two collections of young objects: only full collections find them again. */
  readonly promoted: number;
}

const secret = 'bench-key-bench-key-bench-key-bench-key';
const startTimeoutMs = 60_000;
const repository = new URL('../../', import.meta.url).pathname;

const engineFile = (port: number): string => `version: 1
id: bench
name: Benchmark
hugging_face_id: headgate/bench
task_type: chat
context_length: 8192
pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }
driver: external
kind: vllm
url: http://127.0.0.1:${port}
`;

export interface StackOptions {
  /** Node flags for the gateway, such as --cpu-prof. */
  readonly gatewayFlags: readonly string[];
}

export async function startStack({ gatewayFlags }: StackOptions): Promise<Stack> {
  const dir = await mkdtemp(join(tmpdir(), 'hg-bench-'));
  // PostgreSQL does not run as root: it must reach its folder as another user.
  await chmod(dir, 0o711);
  const children: ChildProcess[] = [];
  const loader = startLoader();
  let redis: TestRedis | null = null;

  async function stop(): Promise<void> {
    loader.stop();
    await Promise.all(children.map((child) => stopChild(child)));
    await redis?.stop();
    await rm(dir, { recursive: true, force: true });
  }

  try {
    const engine = await forkListening('engine.ts', [], children);
    const bare = await forkListening('bare.ts', [`http://127.0.0.1:${engine.port}`], children);
    const relay = await forkListening('relay.ts', [`http://127.0.0.1:${engine.port}`], children);
    const enginesDir = await writeEngines(dir, engine.port);
    const home = { enginesDir, flags: gatewayFlags, children };
    const gateway = await startGateway({ ...home, dataDir: join(dir, 'data'), redisUrl: null });
    const gatewayUrl = `http://127.0.0.1:${gateway.port}`;
    const authorization = `Bearer ${secret}`;
    await prepare(gatewayUrl, authorization);
    const program = findRedisServer();
    redis = program === null ? null : await startServer(program);
    const shared =
      redis === null ? null : await startGateway({ ...home, dataDir: join(dir, 'shared'), redisUrl: redis.url });
    if (shared !== null) await prepare(`http://127.0.0.1:${shared.port}`, authorization);
    const redisPid = redis?.pid ?? null;
    const pinAll = (): boolean => {
      const proxies = [bare.pid, relay.pid, gateway.pid, ...(shared === null ? [] : [shared.pid])];
      const below = [gateway, ...(shared === null ? [] : [shared])].flatMap(({ pid }) => descendants(pid));
      const rest = [process.pid, loader.pid, engine.pid, ...below.map(({ pid }) => pid)];
      if (redisPid !== null) rest.push(redisPid);
      return proxies.every((pid) => pin(pid, 1)) && rest.map((pid) => pin(pid, 0)).some(Boolean);
    };
    return {
      loader,
      variants: {
        direct: { name: 'direct', ...engine, authorization: null },
        bare: { name: 'bare', ...bare, authorization: null },
        relay: { name: 'relay', ...relay, authorization: null },
        gateway: { name: 'gateway', ...gateway, authorization },
      },
      redis: shared === null ? null : { name: 'redis', ...shared, authorization },
      redisPid,
      postgresPids: (variant) =>
        descendants(variant.pid)
          .filter(({ name }) => name === 'postgres')
          .map(({ pid }) => pid),
      gatewayUrl,
      authorization,
      cores: pinAll() ? { proxy: 1, rest: 0 } : null,
      pinAll: () => void pinAll(),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Listening {
  readonly pid: number;
  readonly port: number;
  readonly memory: () => Memory | null;
}

/** Sums what `--trace-gc-nvp` prints at each garbage collection; null if the child does not print it. */
function traceMemory({ stdout }: ChildProcess): () => Memory | null {
  let memory: Memory | null = null;
  let rest = '';
  stdout?.setEncoding('latin1').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const allocated = / allocated=(\d+) /.exec(line)?.[1];
      if (allocated === undefined) continue;
      const promoted = / promoted=(\d+) /.exec(line)?.[1] ?? '0';
      memory = {
        allocated: (memory?.allocated ?? 0) + Number(allocated),
        promoted: (memory?.promoted ?? 0) + Number(promoted),
      };
    }
  });
  return () => memory;
}

function forkListening(file: string, args: string[], children: ChildProcess[]): Promise<Listening> {
  const child = fork(new URL(file, import.meta.url), args);
  children.push(child);
  return new Promise((resolve, reject) => {
    child.once('message', ({ port }: { port: number }) => resolve({ pid: child.pid ?? 0, port, memory: () => null }));
    child.once('exit', (code) => reject(new Error(`${file} ended with ${String(code)}`)));
  });
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

/** Arguments of `npm start` to Node, so that the gateway is measured as it is run; `flags` override its own. */
async function startArguments(flags: readonly string[]): Promise<string[]> {
  const text = await readFile(join(repository, 'package.json'), 'utf8');
  const { scripts } = JSON.parse(text) as { scripts: { start: string } };
  const [program, ...args] = scripts.start.replace(/^exec /, '').split(' ');
  if (program !== 'node') throw new Error(`npm start begins with "${String(program)}", not with node`);
  return [...args.slice(0, -1), ...flags, ...args.slice(-1)];
}

async function writeEngines(dir: string, port: number): Promise<string> {
  const enginesDir = join(dir, 'engines');
  await mkdir(enginesDir);
  await writeFile(join(enginesDir, 'bench.yaml'), engineFile(port));
  return enginesDir;
}

interface GatewayHome {
  readonly enginesDir: string;
  readonly dataDir: string;
  readonly redisUrl: string | null;
  readonly flags: readonly string[];
  readonly children: ChildProcess[];
}

async function startGateway({ enginesDir, dataDir, redisUrl, flags, children }: GatewayHome): Promise<Listening> {
  const port = await freePort();
  const env = {
    PATH: process.env['PATH'],
    HOME: process.env['HOME'],
    PORT: String(port),
    LOG_LEVEL: 'warn',
    HEADGATE_DATA_DIR: dataDir,
    ...(redisUrl === null ? {} : { REDIS_URL: redisUrl }),
    HEADGATE_ENGINES_DIR: enginesDir,
    HEADGATE_BOOTSTRAP_KEY: secret,
  };
  const child = spawn(process.execPath, await startArguments(flags), {
    cwd: repository,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  children.push(child);
  const memory = traceMemory(child);
  const untilMs = performance.now() + startTimeoutMs;
  while (performance.now() < untilMs && child.exitCode === null) {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/pricing`).catch(() => null);
    if (answer?.status === 200) return { pid: child.pid ?? 0, port, memory };
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('the gateway did not start');
}

/** Adds credit, and makes one request. */
async function prepare(url: string, authorization: string): Promise<void> {
  const headers = { authorization, 'content-type': 'application/json' };
  const post = async (path: string, body: unknown, status: number): Promise<void> => {
    const answer = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await answer.text();
    if (answer.status !== status) throw new Error(`${path} answered ${answer.status}: ${text}`);
  };
  await liftLimits(url, headers);
  await post('/v1/wallet/credits', { amount: '1000000', reference: 'bench' }, 201);
  await post('/v1/chat/completions', { model: 'bench', messages: [{ role: 'user', content: 'start' }] }, 200);
}

/** The first key has the limits of every new key. */
async function liftLimits(url: string, headers: Readonly<Record<string, string>>): Promise<void> {
  const keys = (await (await fetch(`${url}/v1/keys`, { headers })).json()) as { data: { id: string }[] };
  const body = JSON.stringify({ requests_per_minute: null, max_concurrency: null });
  for (const { id } of keys.data) await fetch(`${url}/v1/keys/${id}`, { method: 'PATCH', headers, body });
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 45_000);
  await ended;
  clearTimeout(late);
}
