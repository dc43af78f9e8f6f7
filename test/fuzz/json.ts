import { isDeepStrictEqual } from 'node:util';
import { type Endpoint, endpoints } from '#edge/inference/request/endpoints.ts';
import { olderVllmFields } from '#edge/inference/request/vllm-fields.ts';
import type { Body } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';
import { type Answer, wrongOf } from './answers.ts';
import { type Organization, startFuzzed } from './gateway.ts';
import { type ApiDocument, type JsonRequest, jsonCases } from './json-bodies.ts';
import { booksWrong, type Served } from './json-books.ts';
import { type JsonEngine, type Seen, startJsonEngine } from './json-engine.ts';
import { BrokenPromise, type OpenTarget, type Target } from './target.ts';

type JsonCase = readonly JsonRequest[];

/** Micro-dollars per million tokens, as the engine files below have them. */
const prices = { input: 100_000n, cached: 50_000n, output: 400_000n };

function engineFile(id: string, taskType: string, url: string): string {
  return [
    'version: 1',
    `id: ${id}`,
    `name: The ${id}`,
    `hugging_face_id: test/${id}`,
    `task_type: ${taskType}`,
    'context_length: 8192',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }',
    'driver: external',
    'kind: vllm',
    `upstream_model: up/${id}`,
    `url: ${url}`,
    '',
  ].join('\n');
}

/** Set by the gateway, so that they need not be what was sent. */
const limits = ['max_tokens', 'max_completion_tokens', 'max_output_tokens'];
const rewritten = ['model', ...limits, 'stream_options', 'cache_salt'];
const responsesPath = '/v1/responses';
const messagesPath = '/v1/messages';
/** The same for responses only. */
const rewrittenOfResponses = ['store', 'request_id'];

/** By path. */
const decisions: ReadonlyMap<string, Readonly<Record<string, string>>> = new Map(
  endpoints.map((endpoint: Endpoint) => [
    endpoint.enginePath ?? endpoint.path,
    { ...olderVllmFields, ...endpoint.fields },
  ]),
);

const without = (value: object, path: string): object => {
  const ours = path === responsesPath ? [...rewritten, ...rewrittenOfResponses] : rewritten;
  return Object.fromEntries(Object.entries(value).filter(([key]) => !ours.includes(key)));
};

/** Fields in which vLLM accepts null in a request, and then cannot write it in its answer. */
const nullsOfResponses: Readonly<Record<string, unknown>> = { background: false, truncation: 'disabled' };

/** The fields that an engine is to get for what was sent. */
const meant = (own: object, path: string): object =>
  Object.fromEntries(
    Object.entries(own).map(([key, value]) => [
      key,
      value === null && path === responsesPath && Object.hasOwn(nullsOfResponses, key) ? nullsOfResponses[key] : value,
    ]),
  );

/** The defect of a request as an engine got it; null where there is none. */
function wrongForwarded(sent: Uint8Array, { path, bytes, body }: Seen): string | null {
  const own = parse(sent);
  if (body === null) return own === null ? null : `an engine got no JSON: ${bytes.toString()}`;
  if (own === null) return `an engine got JSON that nobody sent: ${bytes.toString()}`;
  if (!isDeepStrictEqual(without(meant(own, path), path), without(body, path)))
    return `an engine got other fields: ${bytes.toString()}`;
  const { model, cache_salt: salt, stream, stream_options: options } = body as Body;
  if (!String(model).startsWith('up/')) return `an engine got the model ${String(model)}`;
  const isSalted = Object.hasOwn(decisions.get(path) ?? {}, 'cache_salt');
  if (isSalted && (typeof salt !== 'string' || salt.length < 20))
    return `an engine got the salt ${JSON.stringify(salt)}`;
  if (asksForUsage(path, stream) && options?.include_usage !== true)
    return `nobody asked for usage: ${bytes.toString()}`;
  return wrongLimit(own, body) ?? wrongOfResponses(path, body) ?? refusedField(path, body);
}

const asksForUsage = (path: string, stream: unknown): boolean => path.endsWith('completions') && stream === true;

/** The output may be cut to what is paid for. */
function wrongLimit(own: object, body: Readonly<Record<string, unknown>>): string | null {
  for (const name of limits) {
    const [asked, given]: unknown[] = [Reflect.get(own, name), body[name]];
    const isLess = typeof given === 'number' && given <= Number(asked);
    if (typeof asked === 'number' && !isLess) return `an engine got ${name} ${String(given)}`;
  }
  return null;
}

function wrongOfResponses(path: string, body: Readonly<Record<string, unknown>>): string | null {
  if (path !== responsesPath) return null;
  const { store, request_id: id } = body;
  const isRight = store === false && /^resp_[0-9a-f-]{36}$/.test(String(id));
  return isRight ? null : `an engine got store ${String(store)} and the id ${String(id)}`;
}

/** Refused unless they say this, with which they ask for nothing. */
const idle: Readonly<Record<string, string>> = {
  use_beam_search: 'false',
  best_of: '1',
  priority: '0',
  logits_processors: '[]',
  media_io_kwargs: '{}',
  mm_processor_kwargs: '{}',
  vllm_xargs: '{}',
  background: 'false',
};

function refusedField(path: string, body: Readonly<Record<string, unknown>>): string | null {
  const fields = decisions.get(path) ?? {};
  const isOurs = (key: string): boolean => path === responsesPath && rewrittenOfResponses.includes(key);
  const isRefused = (key: string): boolean => Object.hasOwn(fields, key) && fields[key] === 'refused' && !isOurs(key);
  const found = Object.entries(body).find(
    ([key, value]) => isRefused(key) && value !== null && JSON.stringify(value) !== idle[key],
  );
  return found === undefined ? null : `an engine got the field ${found[0]}: ${JSON.stringify(body)}`;
}

function parse(bytes: Uint8Array): object | null {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** The defect of an answer that an engine made; null where there is none. */
function wrongServed({ status, headers, body }: Answer, request: JsonRequest): string | null {
  if (status !== 200) return null;
  const text = Buffer.from(body, 'latin1').toString('utf8');
  if ((headers.get('content-type') ?? '').startsWith('text/event-stream')) {
    const frames = text
      .split('\n\n')
      .flatMap((frame) => /^(?::.*\n)*(?:event: \S+\n)?(data: .*)$/.exec(frame)?.[1] ?? []);
    const isEnd =
      request.path === responsesPath
        ? frames.at(-1)?.endsWith('"type":"response.completed"}') === true
        : request.path === messagesPath
          ? frames.at(-1) === 'data: {"type":"message_stop"}'
          : frames.pop() === 'data: [DONE]';
    if (!isEnd) return `a stream has no end: ${text}`;
    const broken = frames.find((frame) => parse(Buffer.from(frame.slice(6))) === null);
    return broken === undefined ? null : `a frame is no JSON: ${broken}`;
  }
  const parsed = parse(Buffer.from(text));
  if (parsed === null) return `an answer of ${request.path} is no JSON: ${text}`;
  const { model }: Body = parsed;
  return model === undefined || ['chat', 'embed', 'rank'].includes(String(model))
    ? null
    : `an answer names ${String(model)}`;
}

/** As clients do where a busy machine lets the database wait. */
async function askAgain(ask: () => Promise<Answer>): Promise<Answer> {
  for (let left = 4; ; left -= 1) {
    const answer = await ask();
    if (answer.status !== 503 || left === 0 || answer.headers.get('retry-after') === undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function open(databaseUrl: string | null): Promise<OpenTarget<JsonCase>> {
  const engine = await startJsonEngine();
  const engines = {
    chat: engineFile('chat', 'chat', engine.url),
    embed: engineFile('embed', 'embedding', engine.url),
    rank: engineFile('rank', 'rerank', engine.url),
  };
  const env = { HEADGATE_MAX_ACTIVE_KEYS: '1000000' };
  const gateway = await startFuzzed({ databaseUrl, model: 'chat', engines, env });
  const document: ApiDocument = (await (await fetch(new URL('/openapi.json', gateway.url))).json()) as Body;
  let attacker = await gateway.openOrganization();
  let served = new Map<string, Served>();

  async function tryOne(request: JsonRequest): Promise<void> {
    const answer = await askAgain(() => send(gateway.url, request, attacker));
    const wrong = wrongOf(answer) ?? wrongServed(answer, request);
    if (wrong !== null) throw new BrokenPromise(wrong);
    const id = answer.headers.get('x-request-id') ?? '';
    checkSeen(engine, id, { request, answer });
    const [seen] = engine.seen.get(id) ?? [];
    if (seen !== undefined) served.set(id, { status: answer.status, usage: seen.usage });
  }
  return {
    cases: jsonCases(document),
    known: [],
    async try(given) {
      const tried = await Promise.allSettled([...given.map(tryOne), gateway.serveCustomer()]);
      gateway.isAlive();
      for (const one of tried) if (one.status === 'rejected') throw one.reason;
    },
    async settle() {
      const wrong = await booksWrong(attacker, served, prices);
      if (wrong !== null) throw new BrokenPromise(wrong);
      attacker = await gateway.openOrganization();
      served = new Map();
      engine.seen.clear();
    },
    show: (given) => given.map(showRequest).join('\n'),
    async close() {
      await gateway.close();
      await engine.close();
    },
  };
}

function checkSeen(
  engine: JsonEngine,
  id: string,
  { request, answer }: { request: JsonRequest; answer: Answer },
): void {
  const seen = engine.seen.get(id) ?? [];
  const { headers, status } = answer;
  const isRepeated = headers.get('idempotent-replayed') === 'true' || 'idempotency-key' in request.headers;
  const isInference = endpoints.some(({ path }) => path === request.path);
  const isServed = status === 200 && isInference && !isRepeated && !('x-headgate-dry-run' in request.headers);
  if (isServed && seen.length !== 1)
    throw new BrokenPromise(`an answer of 200 was asked of the engine ${seen.length} times`);
  if (seen.length > 1) throw new BrokenPromise(`an engine was asked ${seen.length} times`);
  const wrong = seen[0] === undefined ? null : wrongForwarded(request.body, seen[0]);
  if (wrong !== null) throw new BrokenPromise(wrong);
}

const showRequest = ({ method, path, key, headers, body }: JsonRequest): string =>
  `${method} ${path} (${key}) ${JSON.stringify(headers)}: ${JSON.stringify(Buffer.from(body).toString('latin1'))} in latin1`;

async function send(url: string, request: JsonRequest, attacker: Organization): Promise<Answer> {
  const { method, path, key, headers, body } = request;
  const secret = { inference: attacker.key, management: attacker.managementKey, admin: givenKey }[key];
  const sent = await fetch(new URL(path.replace('key_SPARE', attacker.spareKeyId), url), {
    method,
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...latin1(headers) },
    body: Buffer.from(body),
  });
  const text = Buffer.from(await sent.arrayBuffer()).toString('latin1');
  return { status: sent.status, headers: new Map(sent.headers), body: text, whole: true };
}

const latin1 = (headers: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, Buffer.from(value).toString('latin1')]));

/** Sends any JSON body: engines get it unchanged, the ledger has the engines' counts, errors are the client's. */
export const jsonTarget: Target<JsonCase> = { name: 'json', roundCases: 100, open };
