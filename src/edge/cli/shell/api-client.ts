import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { ClientConfig } from '#base/config/config.ts';
import { FailedError, UsageError } from './errors.ts';
import { codeOf, elsewhereText, refusalText, strangerText, unreachableText } from './refusals.ts';

/** Methods of the gateway's routes. */
export type ApiMethod = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Asked {
  readonly body?: unknown;
  /** Sent as multipart/form-data, in place of a body. */
  readonly form?: FormData;
  readonly answerTimeoutMs?: number;
}

/** Client for the gateway's HTTP API. */
export interface ApiClient {
  /**
   * @param path begins with /v1
   * @param asked `body` is sent as JSON if there is one; `answerTimeoutMs` is for requests that take longer than usual
   * @returns the answer's JSON; null if the answer has no body (204)
   * @throws FailedError with the gateway's message, or the reason why the gateway is unreachable
   */
  call(method: ApiMethod, path: string, asked?: Asked): Promise<unknown>;
  /** As `call`, with the status of the answer, for answers whose status matters. */
  ask(method: ApiMethod, path: string, asked?: Asked): Promise<{ readonly status: number; readonly answer: unknown }>;
  /** Yields the text of an answer as it arrives. @throws FailedError as `call` does, and if the answer breaks off */
  text(path: string, asked?: Pick<Asked, 'answerTimeoutMs'>): AsyncIterable<string>;
  /** Yields the bytes of an answer as they arrive. @throws FailedError as `text` */
  parts(path: string): AsyncIterable<Buffer>;
  /** Returns an answer that is not JSON. @throws FailedError as `call` */
  bytes(path: string): Promise<Buffer>;
  /**
   * Yields server-sent events until the stream ends.
   * @param after the `id` of the last event received
   * @throws FailedError if the stream cannot begin
   */
  events(path: string, after?: string): AsyncIterable<ServerEvent>;
}

export interface ServerEvent {
  /** Type of the event; `message` if the stream names none. */
  readonly event: string;
  /** Id of this event, or of the last event that had one. */
  readonly id: string;
  readonly data: string;
}

const usualTimeoutMs = 60_000;

/** Creates a client on Node's own HTTP: `fetch` ends a stream that is silent for five minutes. */
export function createApiClient(config: ClientConfig): ApiClient {
  const ask: ApiClient['ask'] = async (method, path, asked = {}) => {
    const response = await send(config, { method, path, ...asked });
    const status = response.statusCode ?? 0;
    if (status === 204) {
      response.resume();
      return { status, answer: null };
    }
    const bytes = await readWhole(config, response);
    try {
      return { status, answer: JSON.parse(bytes.toString('utf8')) as unknown };
    } catch {
      throw new FailedError(strangerText(config));
    }
  };
  return {
    ask,
    call: async (method, path, asked) => (await ask(method, path, asked)).answer,
    async *text(path, asked = {}) {
      const response = await send(config, { method: 'GET', path, headers: { accept: '*/*' }, ...asked });
      goOnForEver(response);
      response.setEncoding('utf8');
      try {
        yield* response as AsyncIterable<string>;
      } catch {
        throw new FailedError(`the answer of ${config.url} broke off; the output is incomplete`);
      }
    },
    async *parts(path) {
      const response = await send(config, { method: 'GET', path, headers: { accept: '*/*' } });
      try {
        yield* response as AsyncIterable<Buffer>;
      } catch {
        throw new FailedError(`the answer of ${config.url} broke off; the output is incomplete`);
      }
    },
    async bytes(path) {
      const response = await send(config, {
        method: 'GET',
        path,
        headers: { accept: '*/*' },
        answerTimeoutMs: usualTimeoutMs,
      });
      return readWhole(config, response);
    },
    async *events(path, after) {
      const headers = { accept: 'text/event-stream', ...(after !== undefined && { 'last-event-id': after }) };
      const response = await send(config, { method: 'GET', path, headers });
      goOnForEver(response);
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
    throw new FailedError(unreachableText(config, error), { isPassing: true, code: 'unreachable' });
  });
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return response;
  const { 'x-request-id': requestId, location } = response.headers;
  const body = await readWhole(config, response).then(String, () => '');
  if (status >= 300 && status < 400) throw new FailedError(elsewhereText(config, location), { code: 'redirected' });
  throw new FailedError(refusalText(config, { method, status, path, body }), {
    isPassing: status >= 500 || status === 429,
    requestId: typeof requestId === 'string' ? requestId : null,
    code: codeOf(body),
  });
}

/** Turns the timeout off: a followed log may be silent for any time. */
const goOnForEver = (response: IncomingMessage): void => void response.socket.setTimeout(0);

/** Most bytes of an answer in memory: more than any gateway sends. */
const answerBytesMax = 256 * 1024 * 1024;

/** @throws FailedError for an answer that breaks off, stalls, or exceeds the limit */
async function readWhole(config: ClientConfig, response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      length += chunk.length;
      // Leaving the loop closes the connection.
      if (length > answerBytesMax) break;
      chunks.push(chunk);
    }
  } catch {
    // A gateway that restarts will answer again soon.
    throw new FailedError(
      `the connection to ${config.url} ended before the whole answer arrived; the gateway may have carried out the command`,
      { isPassing: true, code: 'unreachable' },
    );
  }
  if (length > answerBytesMax) throw new FailedError(strangerText(config));
  return Buffer.concat(chunks);
}

/** @throws UsageError if there is no key */
export function keyOf({ apiKey, url, loginProblem }: ClientConfig): string {
  if (apiKey !== null) return apiKey;
  if (loginProblem !== null) throw new UsageError(loginProblem);
  throw new UsageError(
    `HEADGATE_API_KEY is not set, and there is no login at ${url}: save a key with "headgate login". The gateway's ` +
      'first start prints one',
  );
}

interface Payload {
  readonly contentType: string;
  readonly bytes: Buffer;
}

/** Returns the body and its type; null if there is no body. */
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
      'user-agent': 'headgate-cli',
      ...further,
      ...(payload !== null && { 'content-type': payload.contentType, 'content-length': payload.bytes.length }),
    };
    const request = url.startsWith('https:') ? httpsRequest : httpRequest;
    const outgoing = request(url, { method, headers }, resolve);
    outgoing.setTimeout(answerTimeoutMs, () => outgoing.destroy(Object.assign(new Error(), { code: 'ETIMEDOUT' })));
    outgoing.on('error', reject);
    outgoing.end(payload?.bytes);
  });
}

/** Parses server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html */
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

/** Treats a broken connection as the end of the stream: `engines logs -f` connects again. */
async function* untilCut(response: IncomingMessage): AsyncGenerator<string> {
  try {
    yield* response as AsyncIterable<string>;
  } catch {
    response.destroy();
  }
}
