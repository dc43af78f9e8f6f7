import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { Hono, type MiddlewareHandler } from 'hono';
import type { Log } from '#base/log.ts';
import type { Authenticator } from './authenticate.ts';
import { installFallbacks } from './fallbacks.ts';
import type { Caller, HttpEnv } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';

/** What is asked of the JSON API for somebody whom the gateway knows already, such as a user who is signed in. */
export interface OwnRequest {
  readonly method: string;
  /** With its query: `/v1/keys?limit=50`. */
  readonly path: string;
  /** Sent as JSON; a form as `multipart/form-data`. */
  readonly body?: object | undefined;
  /** Such as `accept`, in lower case. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Of the request that it is asked for. */
  readonly requestId: string;
  /** Of the client's connection. */
  readonly remoteAddress: string | undefined;
  /** Whether a page asks that is left open, and nobody at it. */
  readonly isByItself?: boolean;
}

export interface OwnAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Null where the answer has none. */
  readonly body: unknown;
}

/** Asks the JSON API in this process: what it refuses to somebody, it refuses here. */
export type AskApi = (caller: Caller, request: OwnRequest) => Promise<OwnAnswer>;

/**
 * The same for what is no JSON, or lasts: the answer is passed on as it comes.
 * @param caller asked each time that the API asks who calls, since answers that last outlive sessions; throws AppError
 * for who may not any more
 */
export type OpenApi = (caller: () => Promise<Caller>, request: OwnRequest) => Promise<Response>;

/**
 * The way into the JSON API for pages. Who asks is known by the request object, which no client can make: there is no
 * header and no cookie for it.
 */
export interface OnBehalf {
  /** Knows these requests, and asks the other authenticator for all that came over the wire. */
  authenticator(wire: Authenticator): Authenticator;
  /**
   * The middleware, for requests that came over the wire alone; `ofPage` is told of every other one before it is
   * answered, but for what a page asks by itself.
   */
  forWireAlone(
    middleware: MiddlewareHandler<HttpEnv>,
    ofPage: (caller: Caller) => Promise<void>,
  ): MiddlewareHandler<HttpEnv>;
  /** @param api with all its guards */
  asking(api: Hono<HttpEnv>, log: Log): { readonly ask: AskApi; readonly open: OpenApi };
}

interface Known {
  readonly caller: () => Caller | Promise<Caller>;
  readonly requestId: string;
  readonly isByItself: boolean;
}

export function createOnBehalf(): OnBehalf {
  const known = new WeakMap<RawRequest, Known>();
  return {
    authenticator: (wire) => ({
      authenticate(request) {
        const own = known.get(request);
        return own === undefined ? wire.authenticate(request) : own.caller();
      },
    }),
    forWireAlone: (middleware, ofPage) => async (context, next) => {
      const page = known.get(context.env.incoming);
      if (page === undefined) return middleware(context, next);
      if (!page.isByItself) await ofPage(await page.caller());
      return next();
    },
    asking(api, log) {
      const app = new Hono<HttpEnv>();
      app.use(async (context, next) => {
        const requestId = known.get(context.env.incoming)?.requestId;
        if (requestId !== undefined) context.set('requestId', requestId);
        await next();
      });
      installFallbacks(app, log);
      app.route('/', api);
      const send = async (caller: Known['caller'], request: OwnRequest): Promise<Sent> => {
        const { requestId, isByItself = false, ...own } = request;
        const { bytes, headers } = await contentOf(own);
        const { incoming, outgoing } = exchangeOf(bytes, own.remoteAddress);
        known.set(incoming, { caller, requestId, isByItself });
        const end = (): void => void outgoing.emit('close');
        try {
          const sent = new Request(new URL(own.path, 'http://localhost'), { method: own.method, headers });
          return { response: await app.fetch(sent, { incoming, outgoing }), end };
        } catch (error) {
          end();
          throw error;
        }
      };
      return {
        async ask(caller, request) {
          const { response, end } = await send(() => caller, request);
          try {
            const text = await response.text();
            return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) };
          } finally {
            end();
          }
        },
        async open(caller, request) {
          const { response, end } = await send(caller, request);
          if (response.body === null) {
            end();
            return response;
          }
          return new Response(endingWith(response.body, end), response);
        },
      };
    },
  };
}

interface Sent {
  readonly response: Response;
  /** To be called when the answer has been read, or is not wanted any more. */
  readonly end: () => void;
}

async function contentOf({ body, headers = {} }: Pick<OwnRequest, 'body' | 'headers'>) {
  if (body === undefined) return { bytes: null, headers };
  if (!(body instanceof FormData)) {
    return { bytes: Buffer.from(JSON.stringify(body)), headers: { ...headers, 'content-type': 'application/json' } };
  }
  const form = new Response(body);
  const type = form.headers.get('content-type') ?? '';
  return { bytes: Buffer.from(await form.arrayBuffer()), headers: { ...headers, 'content-type': type } };
}

/** The same bytes; says when the last one was read, and when nobody reads on. */
function endingWith(body: ReadableStream<Uint8Array>, end: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) {
          controller.enqueue(value);
          return;
        }
        end();
        controller.close();
      } catch (error) {
        end();
        controller.error(error);
      }
    },
    async cancel(reason) {
      end();
      await reader.cancel(reason);
    },
  });
}

/** What the guards read of a connection: the body, headers, the address; and when the answer has been read. */
function exchangeOf(bytes: Buffer | null, remoteAddress: string | undefined) {
  const body = Readable.from(bytes === null ? [] : [bytes]);
  const headers = bytes === null ? {} : { 'content-length': String(bytes.length) };
  const incoming = Object.assign(body, { rawHeaders: [], headers, complete: true, socket: { remoteAddress } });
  const outgoing = Object.assign(new EventEmitter(), { closed: false });
  return {
    incoming: incoming as unknown as IncomingMessage,
    outgoing: outgoing as unknown as ServerResponse,
  };
}
