import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { buffer, text } from 'node:stream/consumers';
import { z } from 'zod';
import type { ClientConfig } from '#base/config.ts';
import { FailedError, UsageError } from './errors.ts';

/** Methods of the gateway's routes. */
export type ApiMethod = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Asked {
  readonly body?: unknown;
  /** Sent as multipart/form-data, in the place of a body. */
  readonly form?: FormData;
  readonly answerTimeoutMs?: number;
}

/** The gateway's HTTP API as the commands use it. */
export interface ApiClient {
  /**
   * @param path begins with /v1
   * @param asked `body` is sent as JSON, where there is one; `answerTimeoutMs` is for what takes longer than others
   * @returns the answer's JSON; null where it has none (204)
   * @throws FailedError with what the gateway said, or why it could not be reached
   */
  call(method: ApiMethod, path: string, asked?: Asked): Promise<unknown>;
  /** The text of an answer as it comes. @throws FailedError as `call` does, and where the answer breaks off */
  text(path: string, asked?: Pick<Asked, 'answerTimeoutMs'>): AsyncIterable<string>;
  /** An answer that is no JSON. @throws FailedError as `call` */
  bytes(path: string): Promise<Buffer>;
  /**
   * Server-sent events, until the stream ends.
   * @param after the `id` of the last one that was had
   * @throws FailedError when it cannot begin
   */
  events(path: string, after?: string): AsyncIterable<ServerEvent>;
}

export interface ServerEvent {
  /** `message` where the stream names none. */
  readonly event: string;
  /** Of this event, or of the last one that had one. */
  readonly id: string;
  readonly data: string;
}

const usualTimeoutMs = 60_000;

/** Uses Node's own HTTP: `fetch` ends a stream on which nothing comes for five minutes. */
export function createApiClient(config: ClientConfig): ApiClient {
  return {
    async call(method, path, asked = {}) {
      const response = await send(config, { method, path, ...asked });
      if (response.statusCode === 204) {
        response.resume();
        return null;
      }
      try {
        return JSON.parse(await text(response)) as unknown;
      } catch {
        throw new FailedError(`${config.url} did not answer as Headgate does; HEADGATE_URL names the gateway`);
      }
    },
    async *text(path, asked = {}) {
      const response = await send(config, { method: 'GET', path, headers: { accept: '*/*' }, ...asked });
      response.setEncoding('utf8');
      try {
        yield* response as AsyncIterable<string>;
      } catch {
        throw new FailedError(`the answer of ${config.url} broke off: what has come is not all of it`);
      }
    },
    async bytes(path) {
      const response = await send(config, {
        method: 'GET',
        path,
        headers: { accept: '*/*' },
        answerTimeoutMs: usualTimeoutMs,
      });
      return buffer(response).catch(() => {
        throw new FailedError(`${config.url} broke off its answer`);
      });
    },
    async *events(path, after) {
      const headers = { accept: 'text/event-stream', ...(after !== undefined && { 'last-event-id': after }) };
      const response = await send(config, { method: 'GET', path, headers });
      yield* splitEvents(response);
    },
  };
}

interface ApiRequest extends Asked {
  readonly method: ApiMethod;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

async function send(config: ClientConfig, { method, path, ...asked }: ApiRequest): Promise<IncomingMessage> {
  const apiKey = keyOf(config);
  const url = `${config.url.replace(/\/+$/, '')}${path}`;
  const payload = await payloadOf(asked);
  const response = await connect(url, { method, apiKey, payload, ...asked }).catch((error: unknown) => {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    throw new FailedError(unreachableText(config, code), { isPassing: true });
  });
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return response;
  const { 'x-request-id': requestId } = response.headers;
  const refusal = refusalText(config, { status, path, body: await text(response).catch(() => '') });
  const isPassing = status >= 500 || status === 429;
  throw new FailedError(refusal, { isPassing, requestId: typeof requestId === 'string' ? requestId : null });
}

/** Why nobody answers, and what to do. */
export function unreachableText({ url, environment }: ClientConfig, code: string): string {
  const named =
    (environment['HEADGATE_URL'] ?? '') === '' ? 'HEADGATE_URL or "headgate login" names it' : 'HEADGATE_URL names it';
  return `${url} cannot be reached (${code}): is the gateway running? ${named}`;
}

/** @throws UsageError where there is none */
export function keyOf({ apiKey, url, loginProblem }: ClientConfig): string {
  if (apiKey !== null) return apiKey;
  if (loginProblem !== null) throw new UsageError(loginProblem);
  throw new UsageError(
    `HEADGATE_API_KEY is not set, and there is no login at ${url}: "headgate login" takes a key and keeps it. The first ` +
      'start prints one; with Docker Compose write that key into compose/secrets/bootstrap_key',
  );
}

interface Payload {
  readonly contentType: string;
  readonly bytes: Buffer;
}

/** Null where nothing is sent. */
async function payloadOf({ body, form }: Asked): Promise<Payload | null> {
  if (form !== undefined) {
    const response = new Response(form);
    const contentType = response.headers.get('content-type') ?? '';
    return { contentType, bytes: Buffer.from(await response.arrayBuffer()) };
  }
  return body === undefined ? null : { contentType: 'application/json', bytes: Buffer.from(JSON.stringify(body)) };
}

interface Sent extends Pick<Asked, 'answerTimeoutMs'> {
  readonly method: ApiMethod;
  readonly headers?: Readonly<Record<string, string>>;
  readonly apiKey: string;
  readonly payload: Payload | null;
}

function connect(
  url: string,
  { method, apiKey, payload, headers: further = {}, answerTimeoutMs = usualTimeoutMs }: Sent,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      accept: 'application/json',
      ...further,
      ...(payload !== null && { 'content-type': payload.contentType, 'content-length': payload.bytes.length }),
    };
    const request = url.startsWith('https:') ? httpsRequest : httpRequest;
    const outgoing = request(url, { method, headers }, (response) => {
      // The lines of a followed log may take any time.
      outgoing.setTimeout(0);
      resolve(response);
    });
    outgoing.setTimeout(answerTimeoutMs, () => outgoing.destroy(Object.assign(new Error(), { code: 'ETIMEDOUT' })));
    outgoing.on('error', reject);
    outgoing.end(payload?.bytes);
  });
}

/** Where the names of what is not there can be had. */
const lists: readonly (readonly [path: string, hint: string])[] = [
  ['/v1/admin/holds/', '"headgate holds ls" lists those that were left behind'],
  ['/v1/admin/engines/', '"headgate engines ls" lists the engines'],
  ['/v1/clusters/', '"headgate clusters ls" lists the clusters'],
  ['/v1/keys/', '"headgate keys ls" lists the keys'],
  ['/v1/stacks/', '"headgate stacks ls" lists the stacks'],
  ['/v1/runs/', '"headgate runs ls" lists the runs'],
];

interface Refusal {
  readonly status: number;
  readonly path: string;
  readonly body: string;
}

function hintOf({ keySource, url }: ClientConfig, { status, path }: Refusal, message: string): string | undefined {
  const key = keySource === 'login' ? `the key of your login at ${url}` : 'HEADGATE_API_KEY';
  if (status === 401) {
    return keySource === 'login'
      ? `${key} is not valid any more: "headgate login" takes another one`
      : `${key} must hold a key that is valid`;
  }
  if (status === 403) return `${key} must ${keySource === 'login' ? 'be' : 'hold'} ${neededKey(path)}`;
  if (status !== 404) return undefined;
  // What is missing may be another thing than the path is of.
  const noun = /^There is no such (\w+)\.$/.exec(message)?.[1];
  const found = lists.find(([begin]) => begin === `/v1/${noun}s/`) ?? lists.find(([begin]) => path.startsWith(begin));
  return found?.[1];
}

const neededKey = (path: string): string =>
  /^\/v1\/(wallet|usage|keys|projects|runs|stacks)/.test(path) && !path.startsWith('/v1/wallet/credits')
    ? 'a management key'
    : 'a management key of a platform admin';

/** The gateway's own sentence, and how to mend it where that is for whoever typed the command. */
export function refusalText(config: ClientConfig, refusal: Refusal): string {
  const message = messageOf(refusal.body) ?? `the gateway answered with status ${refusal.status}`;
  const hint = hintOf(config, refusal, message);
  return hint === undefined ? message : `${message.replace(/\.$/, '')}; ${hint}`;
}

const refusalBody = z.looseObject({
  error: z.looseObject({
    message: z.string(),
    details: z.array(z.looseObject({ field: z.string(), message: z.string() })).default([]),
  }),
});

function messageOf(body: string): string | null {
  try {
    const parsed = refusalBody.safeParse(JSON.parse(body));
    if (!parsed.success) return null;
    const { message, details } = parsed.data.error;
    // The message names the first few.
    return details.length < 2 ? message : details.map((one) => `${one.field}: ${one.message}`).join('; ');
  } catch {
    return null;
  }
}

/** Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html */
async function* splitEvents(response: IncomingMessage): AsyncGenerator<ServerEvent> {
  response.setEncoding('utf8');
  let rest = '';
  let id = '';
  let event = 'message';
  let data: string[] = [];
  for await (const chunk of untilCut(response)) {
    const lines = (rest + chunk).split(/\r?\n/);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [, field = '', value = ''] = /^(data|id|event): ?(.*)$/.exec(line) ?? [];
      if (field === 'data') data.push(value);
      if (field === 'id') id = value;
      if (field === 'event') event = value;
      if (line !== '') continue;
      if (data.length > 0) yield { event, id, data: data.join('\n') };
      data = [];
      event = 'message';
    }
  }
}

/** A connection that breaks ends the stream as the gateway's own end does: `engines logs -f` connects again. */
async function* untilCut(response: IncomingMessage): AsyncGenerator<string> {
  try {
    yield* response as AsyncIterable<string>;
  } catch {
    response.destroy();
  }
}
