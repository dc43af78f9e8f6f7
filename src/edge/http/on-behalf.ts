import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { Hono, type MiddlewareHandler } from 'hono';
import type { Log } from '#base/log.ts';
import type { Authenticator } from './authenticate.ts';
import { installFallbacks } from './fallbacks.ts';
import type { Caller, HttpEnv } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';

/** A request to the JSON API for a caller that the gateway knows already, such as a signed-in user. */
export interface OwnRequest {
  readonly method: string;
  /** Path with the query: `/v1/keys?limit=50`. */
  readonly path: string;
  /** Sent as JSON; a form is sent as `multipart/form-data`. */
  readonly body?: object | undefined;
  /** Headers such as `accept`, in lower case. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Id of the request that this request is made for. */
  readonly requestId: string;
  /** Address of the client's connection. */
  readonly remoteAddress: string | undefined;
  /** True if an open page sends the request by itself, without a user's action. */
  readonly isByItself?: boolean;
}

export interface OwnAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Null if the answer has no body. */
  readonly body: unknown;
}

/** Sends a request to the JSON API in this process. The API rejects the same requests as over the network. */
export type AskApi = (caller: Caller, request: OwnRequest) => Promise<OwnAnswer>;

/**
 * As `AskApi`, for answers that are not JSON or that last: the answer is passed on as it arrives.
 * @param caller called each time that the API authenticates, since answers that last outlive sessions; throws AppError
 * for a caller who has lost access
 */
export type OpenApi = (caller: () => Promise<Caller>, request: OwnRequest) => Promise<Response>;

/**
 * Access to the JSON API for pages. The request object identifies the caller, and no client can create one: there is no
 * header and no cookie for this.
 */
export interface OnBehalf {
  /** Authenticates these requests itself, and passes all requests from the network to the other authenticator. */
  authenticator(wire: Authenticator): Authenticator;
  /**
   * Returns the middleware, applied only to requests from the network. `ofPage` is called before every other request is
   * answered, except for requests that a page sends by itself.
   */
  forWireAlone(
    middleware: MiddlewareHandler<HttpEnv>,
    ofPage: (caller: Caller) => Promise<void>,
  ): MiddlewareHandler<HttpEnv>;
  /** @param api the API with all its guards */
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
  /** Call this when the answer has been read, or is no longer wanted. */
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

/** Returns a stream of the same bytes that calls `end` when the last byte was read, or when the reader stops. */
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

/**
 * Creates the parts of a connection that the guards read: the body, headers and address; and an event when the answer
 * has been read.
 */
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
