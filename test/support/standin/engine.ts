import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A stand-in engine as a process of its own on a unix socket, and the plain HTTP to talk to it. */
export interface StandIn {
  child: ChildProcess;
  socketPath: string;
  log: () => string;
  /** Resolves once the log holds this text; rejects when the process ends without it. */
  logged: (text: string) => Promise<void>;
  exited: Promise<number | null>;
  send: (given: Sent) => Promise<Answer>;
  /** Posts JSON and gives the parsed answer. */
  post: (path: string, body: unknown, headers?: Record<string, string>) => Promise<unknown>;
  open: (given: Sent) => Promise<OpenAnswer>;
  counter: (name: string) => Promise<number>;
  stop: () => Promise<void>;
}

interface Sent {
  method?: string;
  path: string;
  headers?: Record<string, string>;
  body?: unknown;
}

export interface Answer {
  status: number;
  headers: [name: string, value: string][];
  text: string;
  /** True when the body came to its proper end. */
  complete: boolean;
}

/** An answer that is still coming. */
export interface OpenAnswer {
  status: number;
  text: () => string;
  /** Resolves once the text satisfies the test. */
  until: (test: (text: string) => boolean) => Promise<string>;
  done: Promise<Answer>;
  leave: () => void;
}

function pairs(raw: readonly string[]): [string, string][] {
  const list: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) list.push([(raw[at] ?? '').toLowerCase(), raw[at + 1] ?? '']);
  return list;
}

function begin(socketPath: string, sent: Sent): { call: ClientRequest; response: Promise<IncomingMessage> } {
  const text = sent.body === undefined || sent.body === null ? '' : sent.body;
  const body = typeof text === 'string' ? text : JSON.stringify(text);
  const method = sent.method ?? 'POST';
  const headers: Record<string, string> = { connection: 'close', ...sent.headers };
  if (method === 'POST') headers['content-length'] = String(Buffer.byteLength(body));
  const call = request({ socketPath, method, path: sent.path, headers });
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    call.on('response', resolve);
    call.on('error', reject);
  });
  call.end(method === 'POST' ? body : undefined);
  return { call, response };
}

function collect(response: IncomingMessage, call: ClientRequest): OpenAnswer {
  let text = '';
  const waiting = new Set<() => void>();
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => {
    text += chunk;
    for (const check of waiting) check();
  });
  const done = new Promise<Answer>((resolve) => {
    const settle = (): void => {
      const { statusCode, rawHeaders, complete } = response;
      resolve({ status: statusCode ?? 0, headers: pairs(rawHeaders), text, complete });
      for (const check of waiting) check();
    };
    response.on('error', settle);
    response.on('close', settle);
  });
  let over = false;
  void done.then(() => (over = true));
  return {
    status: response.statusCode ?? 0,
    text: () => text,
    until: (test) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          if (test(text)) resolve(text);
          else if (over) reject(new Error(`The answer ended as ${JSON.stringify(text.slice(-300))}`));
          else return;
          waiting.delete(check);
        };
        waiting.add(check);
        check();
      }),
    done,
    leave: () => call.destroy(),
  };
}

/** Starts a stand-in; `ready: false` does not wait until it answers. */
export async function startStandIn(
  flags: readonly string[] = [],
  options: { ready?: boolean; env?: Record<string, string>; socketPath?: string; tcp?: boolean } = {},
): Promise<StandIn> {
  const folder = mkdtempSync(join(tmpdir(), 'standin-'));
  const socketPath = options.socketPath ?? join(folder, 'engine.sock');
  const place = options.tcp === true ? [] : ['--uds', socketPath];
  const child = spawn(process.execPath, ['engines/standin/standin.js', ...flags, ...place], {
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  const listeners = new Set<() => void>();
  const hear = (chunk: Buffer): void => {
    log += chunk.toString();
    for (const listener of listeners) listener();
  };
  child.stdout.on('data', hear);
  child.stderr.on('data', hear);
  let ended = false;
  const exited = new Promise<number | null>((resolve) => {
    child.on('close', (code) => {
      ended = true;
      resolve(code);
      for (const listener of listeners) listener();
    });
  });
  const logged = (text: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const check = (): void => {
        if (log.includes(text)) resolve();
        else if (ended) reject(new Error(`The engine ended with: ${log}`));
        else return;
        listeners.delete(check);
      };
      listeners.add(check);
      check();
    });
  const open = async (sent: Sent): Promise<OpenAnswer> => {
    const { call, response } = begin(socketPath, sent);
    return collect(await response, call);
  };
  const send = async (sent: Sent): Promise<Answer> => (await open(sent)).done;
  const json = { 'content-type': 'application/json' };
  if (options.ready !== false) await logged('Application startup complete.');
  return {
    child,
    socketPath,
    log: () => log,
    logged,
    exited,
    open,
    send,
    post: async (path, body, headers = {}) =>
      JSON.parse((await send({ path, body, headers: { ...json, ...headers } })).text) as unknown,
    async counter(name) {
      const { text } = await send({ method: 'GET', path: '/metrics' });
      const line = text.split('\n').find((candidate) => candidate.startsWith(`${name}{`));
      if (line === undefined) throw new Error(`no counter ${name}`);
      return Number(line.slice(line.lastIndexOf(' ')));
    },
    async stop() {
      child.kill('SIGKILL');
      await exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The parsed `data:` frames of a stream, `[DONE]` as a string. */
export function framesOf(text: string): unknown[] {
  return text
    .split('\n\n')
    .filter((frame) => frame !== '')
    .map((frame) => {
      const data = frame.replace(/^data: /, '');
      return data === '[DONE]' ? data : (JSON.parse(data) as unknown);
    });
}

/** Reads a member by its path out of parsed JSON; undefined where there is none. */
export function at(value: unknown, ...path: (string | number)[]): unknown {
  let current = value;
  for (const step of path) {
    if (typeof current !== 'object' || current === null) return undefined;
    current = (current as Record<string | number, unknown>)[step];
  }
  return current;
}

/** Waits until the condition holds; gives up with its last value after five seconds. */
export async function eventually<T>(read: () => Promise<T>, holds: (value: T) => boolean): Promise<T> {
  const deadlineMs = Date.now() + 300_000;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    if (Date.now() > deadlineMs) throw new Error(`gave up at ${String(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
