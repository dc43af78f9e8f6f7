import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { type afterAll, afterEach } from 'vitest';
import { findPostmaster, stopPostmaster } from '#base/postgres/postmaster.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { createTestDatabase } from '#test/database.ts';
import { runMark } from '#test/guardian.ts';
import { findScratch } from '#test/scratch.ts';

export const repository = new URL('../../../', import.meta.url).pathname;

/** A place for one gateway at a time: its data folder, its engine files, and a database if it asks for one. */
export interface Home {
  readonly dir: string;
  readonly dataDir: string;
  readonly enginesDir: string;
  writeEngine(id: string, text: string): void;
}

export interface StartOptions {
  readonly home: Home;
  /** Null leaves DATABASE_URL out. */
  readonly databaseUrl: string | null;
  readonly env?: Readonly<Record<string, string>>;
  readonly command?: readonly string[];
  readonly cwd?: string;
}

export interface GatewayProcess {
  readonly pid: number;
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  readonly output: { readonly stdout: string; readonly stderr: string };
  /** Waits until a text is on the standard output. */
  printed(pattern: RegExp): Promise<RegExpMatchArray>;
  /** Waits until it listens. */
  url(): Promise<string>;
  /** Sends to only the process, or to its whole process group as a terminal does. */
  signal(name: NodeJS.Signals, target?: 'process' | 'group'): void;
}

/** Gateways as the processes that users start; what a test leaves behind is ended and removed. */
export interface Processes {
  home(engines?: Readonly<Record<string, string>>): Home;
  /** A database of its own with all migrations applied. */
  database(): Promise<string>;
  run(options: StartOptions): GatewayProcess;
}

/** @param when they end: after each test, or `afterAll` tests of a file */
export function useProcesses(when: typeof afterAll = afterEach): Processes {
  const cleanups: (() => Promise<void> | void)[] = [];
  when(async () => {
    for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  });
  return {
    home(engines = { chat: engineFile('chat') }) {
      const home = makeHome(engines);
      cleanups.push(() => clearHome(home));
      return home;
    },
    async database() {
      const database = await createTestDatabase();
      cleanups.push(() => database.drop());
      return database.url;
    },
    run(options) {
      const started = runGateway(options);
      cleanups.push(async () => {
        started.signal('SIGKILL', 'group');
        await started.exited;
      });
      return started;
    },
  };
}

export function makeHome(engines: Readonly<Record<string, string>>): Home {
  const dir = mkdtempSync(join(findScratch().dir, 'hg-test-'));
  chmodSync(dir, 0o711);
  const home = { dir, dataDir: join(dir, 'data'), enginesDir: join(dir, 'engines') };
  mkdirSync(home.enginesDir);
  const writeEngine = (id: string, text: string): void => writeFileSync(join(home.enginesDir, `${id}.yaml`), text);
  for (const [id, text] of Object.entries(engines)) writeEngine(id, text);
  return { ...home, writeEngine };
}

export async function clearHome({ dir, dataDir }: Home): Promise<void> {
  for (const { pid } of engineRecords(dataDir)) if (isAlive(pid)) process.kill(-pid, 'SIGKILL');
  const clusterDir = join(dataDir, 'postgres', 'cluster');
  const left = existsSync(clusterDir) ? await findPostmaster(clusterDir) : null;
  if (left !== null) await stopPostmaster(left.pid, clusterDir);
  rmSync(dir, { recursive: true, force: true });
}

export interface EngineFileOptions {
  readonly flags?: readonly string[];
  /** Further lines, such as `idle_seconds: 1`. */
  readonly lines?: readonly string[];
}

/** The file of a stand-in engine. */
export function engineFile(id: string, { flags = [], lines = [] }: EngineFileOptions = {}): string {
  const program = join(repository, 'engines/standin/standin.js');
  const command = ['node', program, '--uds', '{socket}', '--max-model-len', '8192', ...flags];
  const all = [
    'version: 1',
    `id: ${id}`,
    `name: The ${id}`,
    `hugging_face_id: test/${id}`,
    'task_type: chat',
    'context_length: 8192',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }',
    'driver: process',
    'kind: vllm',
    `command: ${JSON.stringify(command)}`,
    ...lines,
  ];
  return `${all.join('\n')}\n`;
}

export function runGateway({ home, databaseUrl, env = {}, command, cwd = repository }: StartOptions): GatewayProcess {
  const [program = '', ...args] = command ?? [process.execPath, 'src/programs/start.js'];
  const child = spawn(program, args, {
    cwd,
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      ...runMark(),
      PORT: '0',
      HEADGATE_DATA_DIR: home.dataDir,
      HEADGATE_ENGINES_DIR: home.enginesDir,
      ...(databaseUrl === null ? {} : { DATABASE_URL: databaseUrl }),
      // On a busy machine nothing is spooled by chance: what an answer cost is in the books when it has come.
      HEADGATE_SPOOL_AFTER_MS: '60000',
      ...env,
    },
    // A process group of its own, as a terminal makes one for each command.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text));
  const exited = exitOf(child);
  const pid = child.pid ?? 0;

  async function printed(pattern: RegExp): Promise<RegExpMatchArray> {
    const ended = exited.then(({ code }) => ({ code }));
    for (;;) {
      const found = pattern.exec(output.stdout);
      if (found !== null) return found;
      const next = await Promise.race([ended, once(child.stdout, 'data').then(() => null)]);
      if (next !== null && pattern.exec(output.stdout) === null) {
        throw new Error(`it ended with code ${next.code}: ${output.stdout}${output.stderr}`);
      }
    }
  }
  return {
    pid,
    exited,
    output,
    printed,
    url: async () => (await printed(/^Headgate listens on (http:\S+)$/m))[1] ?? '',
    signal(name, target = 'process') {
      if (isAlive(pid)) process.kill(target === 'group' ? -pid : pid, name);
    },
  };
}

/** When it has ended and everything that it wrote is here. */
function exitOf(child: ChildProcess): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
}

/** Checks whether there is such a process; one that has ended and waits for its parent does not count. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch {
    return false;
  }
}

export interface EngineRecord {
  readonly engineId: string;
  readonly pid: number;
  readonly socketPath: string;
}

/** The engine processes that a gateway has written down. */
export function engineRecords(dataDir: string): EngineRecord[] {
  const folder = join(dataDir, 'engines', 'running');
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name) => {
    if (!name.endsWith('.json')) return [];
    try {
      const record: Body = JSON.parse(readFileSync(join(folder, name), 'utf8'));
      return [record];
    } catch (error) {
      // Removed since its name was read: its engine has just ended.
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
      throw error;
    }
  });
}

/** The one engine process that runs. */
export function onlyEngine(dataDir: string): EngineRecord {
  const [record, ...others] = engineRecords(dataDir);
  if (record === undefined || others.length > 0) throw new Error(`${others.length + 1} engines, or none, are running`);
  return record;
}

export async function postgresPid(dataDir: string): Promise<number> {
  const found = await findPostmaster(join(dataDir, 'postgres', 'cluster'));
  if (found === null) throw new Error('PostgreSQL is not running');
  return found.pid;
}

/** Waits until a process has ended. */
export async function ended(pid: number): Promise<void> {
  await eventually(() => Promise.resolve(!isAlive(pid)));
}

/** A key to set with HEADGATE_BOOTSTRAP_KEY, so that a test need not read the printed one. */
export const givenKey = 'a-key-that-the-tests-set-from-outside-0001';

export interface Client {
  get(path: string): Promise<Body>;
  chat(fields: object, signal?: AbortSignal): Promise<Response>;
  /** The usage record of an answer's request, once there is one. */
  recordOf(answer: Response): Promise<Body>;
}

export function clientOf(url: string, key = givenKey): Client {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  return {
    get: (path) =>
      eventually(async () => {
        const answer = await fetch(new URL(path, url), { headers });
        // A report may be rejected for now on a busy machine, as every client's request may.
        return answer.status === 503 && answer.headers.has('retry-after') ? null : answer.json();
      }),
    chat(fields, signal) {
      const messages = [{ role: 'user', content: 'Hello' }];
      const body = JSON.stringify({ model: 'chat', messages, max_tokens: 8, ...fields });
      const init = { method: 'POST', headers, body, ...(signal === undefined ? {} : { signal }) };
      return fetch(new URL('/v1/chat/completions', url), init);
    },
    recordOf: (answer) =>
      eventually(async () => {
        const path = `/v1/usage/requests/${answer.headers.get('x-request-id') ?? ''}`;
        const found = await fetch(new URL(path, url), { headers });
        return found.status === 200 ? found.json() : null;
      }),
  };
}

/** Reads a stream up to its first frames, then goes on with the rest when asked. */
export async function readFrames(answer: Response, frames: number): Promise<{ rest(): Promise<string> }> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) throw new Error('the answer has no body');
  let text = '';
  const read = async (): Promise<boolean> => {
    const { done, value } = await reader.read();
    text += value ?? '';
    return !done;
  };
  while (text.split('data: ').length - 1 < frames) {
    if (!(await read())) throw new Error(`the stream ended early: ${text}`);
  }
  return {
    async rest() {
      while (await read());
      return text;
    },
  };
}
