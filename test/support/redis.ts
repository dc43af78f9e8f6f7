import { spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { Redis } from 'ioredis';
import { createRedisMock } from 'js-redis-server';

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

export async function startServer(program: string, options: readonly string[] = []): Promise<TestRedis> {
  const port = await freePort();
  const child = spawn(program, ['--port', String(port), '--bind', '127.0.0.1', '--save', '', ...options], {
    stdio: 'ignore',
  });
  const url = `redis://127.0.0.1:${port}`;
  await untilAnswers(url, child);
  return {
    url,
    pid: child.pid ?? null,
    flush: () => flush(url),
    stop: () => ended(child),
  };
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

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ host: '127.0.0.1', port: 0 }, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

async function untilAnswers(url: string, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the Redis server ended with ${child.exitCode}`);
    const client = new Redis(url, { lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
    client.on('error', () => undefined);
    try {
      await client.connect();
      await client.ping();
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    } finally {
      client.disconnect();
    }
  }
}

function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.kill('SIGKILL');
  });
}
