import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request, type ClientRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll } from 'vitest';
import { chatPath, type Body } from '../../inference/kit.ts';
import { loadStandinImage, startDocker, type TestDocker } from '../../support/docker.ts';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { image } from './kit.ts';

/** Whole gateways with their engines on a real Docker engine, asked over HTTP alone. */

/** Far beyond what anything takes, so that a busy machine fails nothing. */
const waitMs = 60_000;

export interface EngineFile {
  /** Further arguments of the stand-in. */
  readonly flags?: readonly string[];
  /** Fields of the file, over those of every test. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** The file of an engine that is the stand-in in a container. */
export function dockerFile(id: string, { flags = [], fields = {} }: EngineFile = {}): string {
  const all = {
    version: 1,
    id,
    name: `The ${id}`,
    hugging_face_id: `acme/${id}`,
    task_type: 'chat',
    context_length: 8192,
    pricing: { input_per_million: 0.1, cached_input_per_million: 0.05, output_per_million: 0.4 },
    driver: 'docker',
    image,
    args: [`acme/${id}`, '--max-model-len', '8192', ...flags],
    idle_seconds: 600,
    start_timeout_seconds: 60,
    drain_seconds: 60,
    min_up_seconds: 0,
    ...fields,
  };
  return `${JSON.stringify(all, null, 2)}\n`;
}

/** hosts.yaml with one machine whose GPUs are listed by hand; containers learn theirs from a variable. */
export function hostsFile(socketPath: string, gpuIds: readonly string[] = []): string {
  const gpus = gpuIds.map((id) => ({ id, memory_gib: 80, profile: 'Fake H100' }));
  const host = { name: 'local', docker: `unix://${socketPath}`, gpus, gpu_access: 'environment' };
  return `${JSON.stringify({ hosts: [host] })}\n`;
}

export interface ContainerEvent {
  readonly action: string;
  readonly id: string;
  /** Milliseconds since the Unix epoch, by the Docker engine. */
  readonly atMs: number;
  readonly replica: string;
  readonly exitCode: string | undefined;
  readonly engine: string;
}

export interface Container {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

/** A Docker engine for the tests of one file, with the stand-in's image and all that it ever told of containers. */
export interface Floor {
  docker(): TestDocker;
  /** What happened to the containers of an engine so far. */
  events(engineId: string): readonly ContainerEvent[];
  /** Those of an engine that there are, whatever state they are in. */
  containers(engineId: string): Promise<readonly Container[]>;
  networks(engineId: string): Promise<readonly unknown[]>;
  inspect(id: string): Promise<Body>;
  /**
   * Goes through all that happened to engines' containers in the order of its happening, and tells of each start which
   * of its devices another container had that moment; `[]` when each device was one container's at a time.
   */
  sharedDevices(): readonly string[];
  /** A folder of engine files with hosts.yaml. */
  folder(engines: Readonly<Record<string, string>>, gpuIds?: readonly string[]): string;
  /** A gateway in this process with engine files of its own, stopped at the end of the file. */
  open(options: FloorGateway): Promise<Whole>;
}

export interface FloorGateway {
  readonly engines: Readonly<Record<string, string>>;
  readonly gpuIds?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly databaseUrl?: string;
}

export interface Whole extends Caller {
  readonly gateway: TestGateway;
  /** Writes the file of an engine anew, or removes it, and has the files read again. */
  change(id: string, text: string | null): Promise<void>;
}

export function createFloor(options: () => readonly string[] = () => []): Floor {
  let docker: TestDocker | null = null;
  let watched: WatchedEvents | null = null;
  const folders: string[] = [];
  const gateways: TestGateway[] = [];
  const engine = (): TestDocker => {
    if (docker === null) throw new Error('The Docker engine of this file does not run.');
    return docker;
  };
  const byLabel = (id: string): string => encodeURIComponent(JSON.stringify({ label: [`headgate.engine=${id}`] }));

  beforeAll(async () => {
    docker = await startDocker(options());
    await loadStandinImage(docker, image);
    watched = watchEvents(docker);
  });
  afterAll(async () => {
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    watched?.stop();
    await docker?.stop();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });

  const folder: Floor['folder'] = (engines, gpuIds = []) => {
    const dir = mkdtempSync(join(tmpdir(), 'hg-docker-engines-'));
    folders.push(dir);
    for (const [name, text] of Object.entries(engines)) writeFileSync(join(dir, `${name}.yaml`), text);
    writeFileSync(join(dir, 'hosts.yaml'), hostsFile(engine().socketPath, gpuIds));
    return dir;
  };
  return {
    docker: engine,
    folder,
    events: (id) => (watched?.all() ?? []).filter(({ engine: of }) => of === id),
    sharedDevices: () => (watched === null ? [] : sharedDevices(watched)),
    containers: async (id) =>
      (await engine().call('GET', `/containers/json?all=1&filters=${byLabel(id)}`)) as readonly Container[],
    networks: async (id) => (await engine().call('GET', `/networks?filters=${byLabel(id)}`)) as readonly unknown[],
    inspect: (id) => engine().call('GET', `/containers/${id}/json`) as Promise<Body>,
    async open({ engines, gpuIds = [], env = {}, databaseUrl }) {
      const enginesDir = folder(engines, gpuIds);
      const given = databaseUrl === undefined ? {} : { databaseUrl };
      const gateway = await startGateway({ enginesDir, env, ...given });
      gateways.push(gateway);
      const caller = createCaller(gateway.url, gateway.key);
      return {
        ...caller,
        gateway,
        async change(id, text) {
          if (text === null) rmSync(join(enginesDir, `${id}.yaml`));
          else writeFileSync(join(enginesDir, `${id}.yaml`), text);
          await caller.admin('POST', '/v1/admin/engines/reload');
        },
      };
    },
  };
}

interface WatchedEvents {
  all(): readonly ContainerEvent[];
  /** What the containers that were started had as NVIDIA_VISIBLE_DEVICES, by their id. */
  readonly devices: ReadonlyMap<string, string>;
  stop(): void;
}

function sharedDevices({ all, devices }: WatchedEvents): string[] {
  const owners = new Map<string, string>();
  const shared: string[] = [];
  for (const { action, id, engine } of all()) {
    const own = (devices.get(id) ?? 'unknown').split(',').filter((device) => device !== 'void');
    for (const device of own) {
      const owner = owners.get(device);
      if (action === 'start' && owner !== undefined) shared.push(`${engine} got ${device}, which ${owner} had`);
      if (action === 'start') owners.set(device, `${engine} ${id}`);
      if (action === 'die' && owner === `${engine} ${id}`) owners.delete(device);
    }
  }
  return shared;
}

interface RawEvent {
  readonly Action: string;
  readonly timeNano: number;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** Goes on with a Docker engine that was away: what happened meanwhile is told then. */
function watchEvents({ socketPath, call }: TestDocker): WatchedEvents {
  const all: ContainerEvent[] = [];
  const devices = new Map<string, string>();
  let stopped = false;
  let sent: ClientRequest | null = null;
  let sinceNano = Date.now() * 1e6;
  const filters = encodeURIComponent(JSON.stringify({ type: ['container'] }));

  function take(line: string): void {
    const { Action: action, timeNano, Actor } = JSON.parse(line) as RawEvent;
    if (timeNano <= sinceNano) return;
    sinceNano = timeNano;
    const { ID: id, Attributes: about } = Actor;
    const engine = about['headgate.engine'];
    const replica = about['headgate.replica'] ?? '';
    if (engine === undefined) return;
    all.push({ action, id, atMs: timeNano / 1e6, engine, replica, exitCode: about['exitCode'] });
    if (action === 'create') void inspect(id);
  }
  async function inspect(id: string): Promise<void> {
    const { Config: config }: Body = await call('GET', `/containers/${id}/json`);
    const prefix = 'NVIDIA_VISIBLE_DEVICES=';
    const variable = config.Env.find((one: string) => one.startsWith(prefix)) ?? prefix;
    devices.set(id, variable.slice(prefix.length));
  }
  function connect(): void {
    if (stopped) return;
    const since = (sinceNano / 1e9).toFixed(9);
    let rest = '';
    sent = request({ socketPath, path: `/events?filters=${filters}&since=${since}`, agent: false }, (answer) => {
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (line.trim() !== '') take(line);
      });
      answer.on('error', () => undefined);
      answer.on('close', again);
    });
    sent.on('error', again);
    sent.end();
  }
  let waits = false;
  function again(): void {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      connect();
    }, 50).unref();
  }
  connect();
  return {
    all: () => all,
    devices,
    stop() {
      stopped = true;
      sent?.destroy();
    },
  };
}

export interface Answer {
  readonly status: number;
  /** It came to its proper end. */
  readonly ok: boolean;
  readonly text: string;
  readonly requestId: string;
  readonly retryAfter: string | null;
  /** Milliseconds since the Unix epoch. */
  readonly sentAtMs: number;
  /** null for what is not a stream, or broke before. */
  readonly firstTokenMs: number | null;
  readonly outputTokens: number;
}

/** What clients and operators do over HTTP. */
export interface Caller {
  /** A chat; streamed when the fields say so. Never rejects: what broke is not `ok`. */
  chat(model: string, fields?: object): Promise<Answer>;
  /** The same, told when the first token is there. */
  begin(model: string, fields?: object): { readonly begun: Promise<void>; readonly ended: Promise<Answer> };
  admin(method: string, path: string): Promise<Body>;
  /** An engine as operators see it. */
  engine(id: string): Promise<Body>;
  /** Chats without a pause, so many at once, until told to stop. */
  load(model: string, workers: number, fields?: object): Load;
}

export interface Load {
  readonly answers: readonly Answer[];
  /** Waits until so many more were answered well. */
  more(count: number): Promise<void>;
  /** All answers, once the last has come. */
  stop(): Promise<readonly Answer[]>;
}

export function createCaller(url: string, key: string): Caller {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const chat = (model: string, fields: object, onToken: () => void): Promise<Answer> => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const body = JSON.stringify({ model, messages, max_tokens: 512, ...fields });
    return send(new URL(chatPath, url), { method: 'POST', headers, body }, onToken);
  };
  const begin: Caller['begin'] = (model, fields = {}) => {
    const begun = Promise.withResolvers<void>();
    const ended = chat(model, { stream: true, ...fields }, () => begun.resolve()).then((answer) => {
      if (answer.firstTokenMs === null) begun.reject(new Error(`it did not begin: ${answer.status} ${answer.text}`));
      return answer;
    });
    return { begun: begun.promise, ended };
  };
  const admin: Caller['admin'] = async (method, path) => {
    const answer = await fetch(new URL(path, url), { method, headers });
    const body: Body = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(body)}`);
    return body;
  };
  const once: Caller['chat'] = (model, fields = {}) => chat(model, fields, () => undefined);
  return {
    chat: once,
    begin,
    admin,
    engine: (id) => admin('GET', `/v1/admin/engines/${encodeURIComponent(id)}`),
    load: (model, workers, fields) => startLoad(() => once(model, fields), workers),
  };
}

async function send(url: URL, init: RequestInit, onToken: () => void): Promise<Answer> {
  const sentAtMs = Date.now();
  let got = { status: 0, text: '', requestId: '', retryAfter: null as string | null };
  let firstTokenMs: number | null = null;
  try {
    const answer = await fetch(url, init);
    const requestId = answer.headers.get('x-request-id') ?? '';
    got = { ...got, status: answer.status, requestId, retryAfter: answer.headers.get('retry-after') };
    const decoder = new TextDecoder();
    for await (const chunk of answer.body ?? []) {
      got.text += decoder.decode(chunk, { stream: true });
      if (firstTokenMs === null && /"delta":\{[^}]*"content":"[^"]/.test(got.text)) {
        firstTokenMs = Date.now() - sentAtMs;
        onToken();
      }
    }
  } catch (error) {
    return { ...got, ok: false, text: `${got.text}\n${String(error)}`, sentAtMs, firstTokenMs, outputTokens: 0 };
  }
  const { text } = got;
  const isWhole = text.endsWith('data: [DONE]\n\n') || text.startsWith('{');
  const isGood = /"finish_reason":"(stop|length)"/.test(text) && !/"error":\{/.test(text);
  const outputTokens = Number(
    text
      .match(/"completion_tokens":\d+/g)
      ?.at(-1)
      ?.split(':')[1] ?? 0,
  );
  return { ...got, ok: got.status === 200 && isWhole && isGood, sentAtMs, firstTokenMs, outputTokens };
}

function startLoad(ask: () => Promise<Answer>, workers: number): Load {
  const answers: Answer[] = [];
  let stopped = false;
  const work = async (): Promise<void> => {
    while (!stopped) {
      const answer = await ask();
      answers.push(answer);
      if (!answer.ok) await pause(50);
    }
  };
  const all = Promise.all(Array.from({ length: workers }, work));
  const good = (): number => answers.filter(({ ok }) => ok).length;
  return {
    answers,
    async more(count) {
      const wanted = good() + count;
      await until(`${count} more answers`, () => good() >= wanted || null);
    },
    async stop() {
      stopped = true;
      await all;
      return answers;
    },
  };
}

/** What of an answer a failed test should show. */
export function lostOf(answers: readonly Answer[]): string[] {
  return answers.filter(({ ok }) => !ok).map(({ status, text }) => `${status} ${text.slice(-300)}`);
}

/** Waits until there is a value that is neither null, undefined nor false. */
export async function until<T>(
  what: string,
  look: () => T | null | undefined | false | Promise<T | null | undefined | false>,
  timeoutMs = waitMs,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== null && found !== undefined && found !== false) return found;
    if (performance.now() > deadline) throw new Error(`It did not come to this: ${what}`);
    await pause(25);
  }
}

export interface Books {
  readonly requests: number;
  readonly completed: number;
  readonly outputTokens: number;
  readonly picoUsd: bigint;
}

/** What is written of the requests to a model. */
export async function booksOf(gateway: Pick<TestGateway, 'db'>, model: string): Promise<Books> {
  const [row] = await gateway.db.sql<
    { requests: number; completed: number; tokens: string; cost: string }[]
  >`
    select count(*)::int as requests, count(*) filter (where outcome = 'completed')::int as completed,
      coalesce(sum(output_tokens), 0)::text as tokens, coalesce(sum(cost), 0)::text as cost
    from usage_records where model = ${model}`;
  return {
    requests: row?.requests ?? 0,
    completed: row?.completed ?? 0,
    outputTokens: Number(row?.tokens ?? 0),
    picoUsd: BigInt(row?.cost ?? 0),
  };
}

interface Annotates {
  annotate(message: string): Promise<unknown>;
}

/** A figure to be quoted: with the test's results, and in the file that TEST_FIGURES names. */
export async function figure(test: Annotates, name: string, value: string | number): Promise<void> {
  const line = `${name}: ${typeof value === 'number' ? Math.round(value) : value}`;
  await test.annotate(line);
  const path = process.env['TEST_FIGURES'] ?? '';
  if (path !== '') appendFileSync(path, `${line}\n`);
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
