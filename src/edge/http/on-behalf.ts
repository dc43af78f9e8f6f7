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
  /** Sent as JSON. */
  readonly body?: object | undefined;
  /** Of the request that it is asked for. */
  readonly requestId: string;
  /** Of the client's connection. */
  readonly remoteAddress: string | undefined;
}

export interface OwnAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
}

/** Asks the JSON API in this process: what it refuses to somebody, it refuses here. */
export type AskApi = (caller: Caller, request: OwnRequest) => Promise<OwnAnswer>;

/**
 * The way into the JSON API for pages. Who asks is known by the request object, which no client can make: there is no
 * header and no cookie for it.
 */
export interface OnBehalf {
  /** Knows these requests, and asks the other authenticator for all that came over the wire. */
  authenticator(wire: Authenticator): Authenticator;
  /** The middleware, for requests that came over the wire alone. */
  forWireAlone(middleware: MiddlewareHandler<HttpEnv>): MiddlewareHandler<HttpEnv>;
  /** @param api with all its guards */
  asking(api: Hono<HttpEnv>, log: Log): AskApi;
}

interface Known {
  readonly caller: Caller;
  readonly requestId: string;
}

export function createOnBehalf(): OnBehalf {
  const known = new WeakMap<RawRequest, Known>();
  return {
    authenticator: (wire) => ({
      authenticate: (request) => known.get(request)?.caller ?? wire.authenticate(request),
    }),
    forWireAlone: (middleware) => (context, next) =>
      known.has(context.env.incoming) ? next() : middleware(context, next),
    asking(api, log) {
      const app = new Hono<HttpEnv>();
      app.use(async (context, next) => {
        const requestId = known.get(context.env.incoming)?.requestId;
        if (requestId !== undefined) context.set('requestId', requestId);
        await next();
      });
      installFallbacks(app, log);
      app.route('/', api);
      return async (caller, { method, path, body, requestId, remoteAddress }) => {
        const text = body === undefined ? null : JSON.stringify(body);
        const { incoming, outgoing } = exchangeOf(text, remoteAddress);
        known.set(incoming, { caller, requestId });
        const headers = text === null ? {} : { 'content-type': 'application/json' };
        try {
          const request = new Request(new URL(path, 'http://localhost'), { method, headers });
          const response = await app.fetch(request, { incoming, outgoing });
          return { status: response.status, headers: response.headers, body: await response.json() };
        } finally {
          outgoing.emit('close');
        }
      };
    },
  };
}

/** What the guards read of a connection: the body, headers, the address; and when the answer has been read. */
function exchangeOf(text: string | null, remoteAddress: string | undefined) {
  const body = Readable.from(text === null ? [] : [Buffer.from(text)]);
  const incoming = Object.assign(body, { rawHeaders: [], complete: true, socket: { remoteAddress } });
  const outgoing = Object.assign(new EventEmitter(), { closed: false });
  return {
    incoming: incoming as unknown as IncomingMessage,
    outgoing: outgoing as unknown as ServerResponse,
  };
}
