import { spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { Redis } from 'ioredis';
import { createRedisMock } from 'js-redis-server';
import { freePort } from './free-port.ts';

/** A Redis of the caller's own, empty, on a free port. */
export interface TestRedis {
  readonly url: string;
  /** Null for the one in JavaScript, which runs in this process. */
  readonly pid: number | null;
  /** Forgets everything, scripts included. */
  flush(): Promise<void>;
  stop(): Promise<void>;
}

/** The first Redis or Valkey server on PATH. */
export function findRedisServer(path = process.env['PATH'] ?? ''): string | null {
  const candidates = path
    .split(delimiter)
    .flatMap((folder) => [join(folder, 'redis-server'), join(folder, 'valkey-server')]);
  return candidates.find((candidate) => isProgram(candidate)) ?? null;
}

/** The Valkey server that VALKEY_BIN names, else the first on PATH. */
export function findValkeyServer({ VALKEY_BIN: named = '', PATH = '' } = process.env): string | null {
  if (named !== '') return isProgram(named) ? named : null;
  return (
    PATH.split(delimiter)
      .map((folder) => join(folder, 'valkey-server'))
      .find(isProgram) ?? null
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A real server where there is one, else one in JavaScript that speaks the same protocol. */
export async function startRedis(): Promise<TestRedis> {
  const program = findRedisServer();
  return program === null ? startInProcess() : startServer(program);
}

/** @param given a port that is the caller's, as of a server that is started again; a free one where there is none */
export async function startServer(
  program: string,
  options: readonly string[] = [],
  given: number | null = null,
): Promise<TestRedis> {
  for (;;) {
    const port = given ?? (await freePort());
    const words = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', ...options];
    const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'ignore'] });
    let said = '';
    child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()));
    const url = `redis://127.0.0.1:${port}`;
    if (await answers(url, child)) {
      return { url, pid: child.pid ?? null, flush: () => flush(url), stop: () => ended(child) };
    }
    await ended(child);
    // Somebody else took the port since it was free.
    if (!/Address already in use/.test(said)) throw new Error(`the Redis server ended: ${said}`);
  }
}

async function startInProcess(): Promise<TestRedis> {
  const mock = await createRedisMock();
  const { host = '127.0.0.1', port = 0 } = mock.addresses()[0] ?? {};
  const url = `redis://${host}:${port}`;
  return { url, pid: null, flush: () => flush(url), stop: () => mock.close() };
}

async function flush(url: string): Promise<void> {
  const client = new Redis(url);
  await client.flushall();
  await client.script('FLUSH');
  client.disconnect();
}

/** Checks whether it answers, and not another server that took its port; false once it has ended. */
async function answers(url: string, child: ChildProcess): Promise<boolean> {
  while (child.exitCode === null && child.signalCode === null) {
    const client = new Redis(url, { lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
    client.on('error', () => undefined);
    try {
      await client.connect();
      if ((await client.info('server')).includes(`\nprocess_id:${child.pid}\r`)) return true;
    } catch {
      // It does not listen yet.
    } finally {
      client.disconnect();
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.kill('SIGKILL');
  });
}
