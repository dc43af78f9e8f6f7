import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { Agent, request, type AgentOptions } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll } from 'vitest';
import {
  clearHome,
  engineFile,
  givenKey,
  type GatewayProcess,
  makeHome,
  runGateway,
} from '#test/programs/gateway-process.ts';
import { createTestDatabase } from '#test/database.ts';
import { freePort } from '#test/free-port.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';

/**
 * A gateway that is attacked: a process of its own, so that its memory, its descriptors and its event loop are its own,
 * and two organizations: one attacks, the other one is a customer who wants to be served meanwhile.
 */
export interface Victim {
  readonly url: string;
  readonly attacker: Organization;
  readonly customer: Organization;
  /** Key of a platform administrator. */
  readonly adminKey: string;
  readonly pid: number;
  /** Opens a connection, also to the port for metrics; errors and the end of it are nobody's concern. */
  connect(to?: 'metrics'): Socket;
  /** Bytes that the process holds now, in MiB. */
  memoryMiB(): number;
  /** The most that it held since the last call, in MiB. */
  peakMiB(): number;
  /** Files and connections that it has open, those to its stores too. */
  descriptors(): number;
  /** How many of these connections it has not closed. */
  holds(sockets: readonly Socket[]): number;
  /** The longest that its event loop was held since the last call, in milliseconds. */
  loopHeldMs(): Promise<number>;
  api(path: string, init: ApiCall): Promise<Body>;
}

export interface Organization {
  readonly id: string;
  readonly managementKey: string;
  /** A key of scope `inference`, with the limits that every new key has but for requests per minute. */
  readonly key: string;
  readonly keyId: string;
}

export interface ApiCall {
  readonly key: string;
  readonly method?: string;
  readonly body?: object;
}

export interface VictimOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Descriptors that the process may have. */
  readonly descriptorsMax?: number;
  /** Engine files by their id; without them a stand-in for chat. */
  readonly engines?: Readonly<Record<string, string>>;
}

/** Starts a gateway for the tests of a file. */
export function useVictim(options: VictimOptions = {}): () => Victim {
  let victim: Victim | null = null;
  let close: () => Promise<void> = async () => undefined;
  beforeAll(async () => {
    const database = await createTestDatabase();
    const home = makeHome(options.engines ?? { chat: engineFile('chat') });
    const metricsPort = await freePort();
    const own = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_METRICS_PORT: String(metricsPort), LOG_LEVEL: 'warn' };
    const limit = options.descriptorsMax;
    const start = `ulimit -n ${limit ?? 'hard'}; exec "${process.execPath}" src/programs/start.js`;
    const command = { command: ['bash', '-c', start] };
    const all = { ...own, ...options.env };
    const gateway = runGateway({ home, databaseUrl: database.url, env: all, ...(limit === undefined ? {} : command) });
    close = async () => {
      gateway.signal('SIGKILL', 'group');
      await gateway.exited;
      await clearHome(home);
      await database.drop();
    };
    victim = await openVictim(gateway, metricsPort);
    // The work of a first request must not be taken for the work of an attack.
    for (const { key } of [victim.attacker, victim.customer]) await chat(victim.url, key, new Agent());
  });
  afterAll(() => close());
  return () => {
    if (victim === null) throw new Error('the gateway is started before the tests, not while they are collected');
    return victim;
  };
}

async function openVictim(gateway: GatewayProcess, metricsPort: number): Promise<Victim> {
  const { pid } = gateway;
  const url = await gateway.url();
  const api = (path: string, call: ApiCall): Promise<Body> => callApi(new URL(path, url), call);
  return {
    url,
    pid,
    api,
    adminKey: givenKey,
    attacker: await openOrganization(api, 'Attacker'),
    customer: await openOrganization(api, 'Customer'),
    connect(to) {
      const { hostname, port } = new URL(url);
      const socket = connect(to === 'metrics' ? metricsPort : Number(port), hostname);
      socket.on('error', () => undefined);
      return socket;
    },
    memoryMiB: () => readMemory(pid, 'VmRSS'),
    peakMiB() {
      const peak = readMemory(pid, 'VmHWM');
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
      return peak;
    },
    descriptors: () => readdirSync(`/proc/${pid}/fd`).length,
    holds: (sockets) => heldOf(pid, new Set(sockets.map(({ localPort }) => localPort))),
    async loopHeldMs() {
      const text = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
      return Math.round(Number(/^nodejs_eventloop_lag_max_seconds (\S+)$/m.exec(text)?.[1]) * 1000);
    },
  };
}

/** Connections from these ports whose descriptor the process has. One that only the kernel still empties has none. */
function heldOf(pid: number, ports: ReadonlySet<number | undefined>): number {
  const inodes = new Set<string>();
  for (const line of readFileSync(`/proc/${pid}/net/tcp`, 'utf8').split('\n').slice(1)) {
    const [, , remote = '', , , , , , , inode] = line.trim().split(/\s+/);
    const port = Number.parseInt(remote.slice(remote.indexOf(':') + 1), 16);
    if (ports.has(port)) inodes.add(`socket:[${inode}]`);
  }
  return readdirSync(`/proc/${pid}/fd`).filter((fd) => inodes.has(targetOf(`/proc/${pid}/fd/${fd}`))).length;
}

/** @returns nothing for a descriptor that is closed by now */
function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Reads a field of proc(5), in MiB. */
function readMemory(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const found = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Math.round(Number(found?.[1]) / 1024);
}

async function callApi(url: URL, { key, body, method = body === undefined ? 'GET' : 'POST' }: ApiCall): Promise<Body> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const answer = await fetch(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url.pathname}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

async function openOrganization(api: Victim['api'], name: string): Promise<Organization> {
  const made = await api('/v1/organizations', { key: givenKey, body: { name } });
  const credit = { organization_id: made.id, amount: '10', reference: 'opening' };
  await api('/v1/wallet/credits', { key: givenKey, body: credit });
  const { secret, id } = await api('/v1/keys', { key: made.management_key, body: { name: 'inference' } });
  const unhurried = { requests_per_minute: null };
  await api(`/v1/keys/${id}`, { key: made.management_key, method: 'PATCH', body: unhurried });
  return { id: made.id, managementKey: made.management_key, key: secret, keyId: id };
}

/** A customer's results while an attack ran. */
export interface Served {
  readonly answers: number;
  readonly slowestMs: number;
  readonly medianMs: number;
}

/**
 * The customer asks for one answer after the other, and all of them come. The times are reported, and not held to
 * anything: how fast a busy machine is says nothing of the gateway.
 */
export async function serveCustomer(
  victim: Victim,
  label: string,
  answers = 50,
  own: AgentOptions = { keepAlive: true },
): Promise<Served> {
  const agent = new Agent(own);
  const times: number[] = [];
  await victim.loopHeldMs();
  try {
    for (let count = 0; count < answers; count += 1) {
      const sinceMs = performance.now();
      const { status, text } = await chat(victim.url, victim.customer.key, agent);
      if (status !== 200) throw new Error(`the customer was answered ${status}: ${text}`);
      times.push(performance.now() - sinceMs);
    }
  } finally {
    agent.destroy();
  }
  times.sort((a, b) => a - b);
  const [median = 0, slowest = 0] = [times[times.length >> 1], times.at(-1)].map((ms) => Math.round(ms ?? 0));
  const held = await victim.loopHeldMs();
  tell(`${label}: ${answers} answers, median ${median} ms, slowest ${slowest} ms; its loop held ${held} ms at most`);
  return { answers, slowestMs: slowest, medianMs: median };
}

/** Figures of a run, for whoever reads its output. */
export function tell(line: string): void {
  process.stdout.write(`      ${line}\n`);
}

/** A small request, answered whole. */
export function chat(url: string, key: string, agent: Agent): Promise<{ status: number; text: string }> {
  const body = JSON.stringify({ model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 });
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': body.length };
  return new Promise((resolve, reject) => {
    const sent = request(new URL('/v1/chat/completions', url), { method: 'POST', headers, agent }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part: string) => (text += part));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text })).on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

export interface Posted {
  readonly status: number;
  /** Headers and body as they came. */
  readonly head: string;
  readonly text: string;
}

/**
 * Sends a body of any size over a connection of its own, and takes the answer whenever it comes: a client that is
 * rejected early is still sending then, and may not get rid of all.
 */
export function post(url: string, path: string, key: string, body: string | Buffer): Promise<Posted> {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const type = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const socket = stubborn(url);
  socket.write(head('POST', path, { ...type, 'content-length': bytes.length }));
  socket.write(bytes);
  const parts: Buffer[] = [];
  let [length, needed] = [0, 0];
  return new Promise((resolve, reject) => {
    socket.on('data', (part: Buffer) => {
      parts.push(part);
      length += part.length;
      if (length < needed) return;
      const text = Buffer.concat(parts).toString('latin1');
      needed = answerLength(text);
      if (length < needed) return;
      const end = text.indexOf('\r\n\r\n');
      resolve({ status: Number(text.slice(9, 12)), head: text.slice(0, end), text: text.slice(end + 4) });
      socket.destroy();
    });
    socket.on('close', () => reject(new Error('the connection closed without an answer')));
  });
}

/** How long the whole answer is, by its head; more than there is while the head is not whole. */
function answerLength(text: string): number {
  const end = text.indexOf('\r\n\r\n');
  if (end === -1) return text.length + 1;
  return end + 4 + Number(/\r\ncontent-length: (\d+)/i.exec(text.slice(0, end))?.[1] ?? 0);
}

/** The rejection's status and code, and the field. */
export function refusalOf({ status, text }: Posted): { status: number; code: string; param: string | null } {
  const { error }: Body = JSON.parse(text);
  return { status, code: error.code, param: error.param };
}

/** The head of a request for a connection of one's own, with an empty line at its end. */
export function head(method: string, path: string, headers: Readonly<Record<string, string | number>> = {}): string {
  const lines = Object.entries({ host: 'headgate', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
}

/** Text that a connection got, and whether its other side has closed it. */
export interface Heard {
  text: string;
  closed: boolean;
}

/** Listens to a connection from now on. */
export function hear(socket: Socket): Heard {
  const heard: Heard = { text: '', closed: false };
  socket.on('data', (bytes: Buffer) => (heard.text += bytes.toString('latin1')));
  socket.on('close', () => (heard.closed = true));
  return heard;
}

/** A connection that never closes its own side, whatever the other one does. */
export function stubborn(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  socket.on('error', () => undefined);
  return socket;
}

/** Waits until something holds. */
export async function until(holds: () => boolean): Promise<void> {
  await eventually(async () => holds());
}
