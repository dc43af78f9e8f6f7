import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { liftLimits, type RequestOptions, startGateway, type TestGateway } from '#test/gateway.ts';

/** JSON of any shape; tests compare it. */
// eslint-disable-next-line typescript/no-explicit-any
export type Body = any;

export const chatPath = '/v1/chat/completions';
export const json = { 'content-type': 'application/json' };

export interface EngineFileOptions {
  readonly taskType?: string;
  /** Further arguments of the stand-in. */
  readonly flags?: readonly string[];
  /** Further lines of the file, such as `max_n: 2`. */
  readonly lines?: readonly string[];
  readonly priced?: boolean;
}

function commonLines(id: string, { taskType = 'chat', lines = [], priced = true }: EngineFileOptions): string[] {
  return [
    'version: 1',
    `id: ${id}`,
    `name: The ${id}`,
    `hugging_face_id: test/${id}`,
    `task_type: ${taskType}`,
    'context_length: 8192',
    ...(priced
      ? ['pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }']
      : []),
    ...lines,
  ];
}

/** The file of a stand-in engine that the gateway runs itself. */
export function standinFile(id: string, options: EngineFileOptions = {}): string {
  return processFile('engines/standin/standin.js', id, options);
}

/** The file of an engine whose program, `not-there.js`, is not there. */
export function brokenFile(id: string): string {
  return processFile('engines/standin/not-there.js', id, {});
}

function processFile(program: string, id: string, options: EngineFileOptions): string {
  const command = ['node', program, '--uds', '{socket}', '--max-model-len', '8192'];
  const embedding = options.taskType === 'embedding' ? ['--runner', 'pooling', '--convert', 'embed'] : [];
  const words = [...command, ...embedding, ...(options.flags ?? [])];
  const all = [...commonLines(id, options), 'driver: process', 'kind: vllm', `command: ${JSON.stringify(words)}`];
  return `${all.join('\n')}\n`;
}

/** The file of an engine that somebody else runs. */
export function externalFile(id: string, url: string, options: EngineFileOptions = {}): string {
  return `${[...commonLines(id, options), 'driver: external', `url: ${url}`].join('\n')}\n`;
}

export interface InferenceOptions {
  /** Engine files by their name. */
  readonly engines: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly databaseUrl?: string;
  readonly redisUrl?: string;
}

export interface InferenceBench {
  readonly gateway: TestGateway;
  /** Where the stand-in of an engine listens. */
  socketOf(engineId: string): string;
  /** Posts to a path of the gateway. */
  post(path: string, body: unknown, options?: RequestOptions): Promise<Response>;
  chat(body: object, options?: RequestOptions): Promise<Response>;
  /** The usage record of a request, once there is one. */
  record(requestId: string, key?: string): Promise<Body>;
  /** The usage record of an answer's request. */
  recordOf(answer: Response, key?: string): Promise<Body>;
  wallet(key?: string): Promise<Body>;
}

/** A gateway of the test file's own with engine files of its own. */
export function useInference(make: () => InferenceOptions | Promise<InferenceOptions>): InferenceBench {
  let gateway: TestGateway | null = null;
  let folder: string | null = null;

  beforeAll(async () => {
    const options = await make();
    folder = writeEngines(options.engines);
    gateway = await startGateway({ ...options, enginesDir: folder });
  });
  afterAll(async () => {
    await gateway?.stop();
    if (folder !== null) rmSync(folder, { recursive: true, force: true });
  });

  const opened = (): TestGateway => {
    if (gateway === null) throw new Error('the gateway is started before the tests, not while they are collected');
    return gateway;
  };
  const post = (path: string, body: unknown, options: RequestOptions = {}): Promise<Response> =>
    opened().request(path, { method: 'POST', body, ...options });
  return {
    get gateway() {
      return opened();
    },
    socketOf: (engineId) => findSocket(opened().dataDir, engineId),
    post,
    chat: (body, options) => post(chatPath, chatBody(body), options),
    record: (requestId, key) => findRecord(opened(), requestId, key),
    recordOf: (answer, key) => findRecord(opened(), answer.headers.get('x-request-id') ?? '', key),
    wallet: async (key) => (await opened().request('/v1/wallet', key === undefined ? {} : { key })).json(),
  };
}

export function writeEngines(engines: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'hg-engines-'));
  for (const [name, text] of Object.entries(engines)) writeFileSync(join(folder, `${name}.yaml`), text);
  return folder;
}

export function findSocket(dataDir: string, engineId: string): string {
  const records = join(dataDir, 'engines', 'running');
  for (const name of readdirSync(records)) {
    const record: Body = JSON.parse(readFileSync(join(records, name), 'utf8'));
    if (record.engineId === engineId) return record.socketPath;
  }
  throw new Error(`no process of ${engineId} is running`);
}

/** The required fields of a chat request, with the fields that a test is about. */
export function chatBody(fields: object): object {
  return { model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8, ...fields };
}

async function findRecord(gateway: TestGateway, requestId: string, key = gateway.key): Promise<Body> {
  return eventually(async () => {
    const answer = await gateway.request(`/v1/usage/requests/${requestId}`, { key });
    return answer.status === 200 ? answer.json() : null;
  });
}

/**
 * Waits until there is a value that is neither null nor false.
 * @param pauseMaxMs longest pause between two reads; what takes seconds needs few reads
 */
export async function eventually<T>(read: () => Promise<T | null | false>, pauseMaxMs = 100): Promise<T> {
  const untilMs = Date.now() + 300_000;
  // A long wait polls less often: the awaited work needs the processor itself.
  for (let pauseMs = 10; ; pauseMs = Math.min(pauseMs * 1.2, pauseMaxMs)) {
    const value = await read();
    if (value !== null && value !== false) return value;
    if (Date.now() > untilMs) throw new Error('gave up waiting');
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Status and code of an error answer, with the rest of it. */
export async function errorOf(response: Response): Promise<Body> {
  const body: Body = await response.json();
  return { status: response.status, ...body.error };
}

/** The frames of a stream as text, without comments. */
export const frameTexts = (text: string): readonly string[] =>
  text
    .replaceAll(/^:.*\n/gm, '')
    .split('\n\n')
    .filter((frame) => frame !== '');

/** The `data:` frames of a stream: parsed, `[DONE]` as it is. Comments are left out. */
export function framesOf(text: string): Body[] {
  return frameTexts(text).map((frame) => {
    const data = frame.replace(/^data: /, '');
    return data === '[DONE]' ? data : JSON.parse(data);
  });
}

/** Everything that a gateway or an engine answers to raw bytes, until it closes or `enough` says so. */
export function exchangeRaw(
  url: string,
  parts: readonly (string | Buffer)[],
  enough: (text: string) => boolean = () => false,
): Promise<string> {
  return new Promise((resolve) => {
    const { hostname, port } = new URL(url);
    const socket: Socket = connect(Number(port), hostname);
    let text = '';
    socket.on('data', (bytes: Buffer) => {
      text += bytes.toString('latin1');
      if (enough(text)) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(text));
    for (const part of parts) socket.write(part);
  });
}

export interface DirectAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

/** Asks an engine directly, past the gateway. */
export function askEngine(socketPath: string, path: string, body?: unknown): Promise<DirectAnswer> {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? 'GET' : 'POST';
    const call = request({ socketPath, path, method, headers: { ...json, connection: 'close' } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => (text += chunk));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text }));
    });
    call.on('error', reject);
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** The sum of a counter or gauge of an engine over its labels. */
export async function readMetric(socketPath: string, name: string): Promise<number> {
  const { text } = await askEngine(socketPath, '/metrics');
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

/** An organization of its own with a balance, a management key and what an inference key may do. */
export async function openOrganization(gateway: TestGateway, usd: string | null): Promise<{ id: string; key: string }> {
  const name = `Organization ${Math.random()}`;
  const made: Body = await (await gateway.request('/v1/organizations', { body: { name } })).json();
  if (usd !== null) {
    const credit = { organization_id: made.id, amount: usd, reference: 'opening' };
    const answer = await gateway.request('/v1/wallet/credits', { body: credit });
    if (answer.status !== 201) throw new Error(await answer.text());
  }
  await liftLimits(gateway.url, made.management_key);
  return { id: made.id, key: made.management_key };
}
