import { createHmac } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import type { Hono, MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { IdPrefix } from '#base/id.ts';
import { Turns } from '#base/turns.ts';
import type { Receipts } from '#core/requests/requests.ts';
import { callerId, type HttpContext, type HttpEnv } from '#edge/http/http.ts';
import { nounOf } from './schemas.ts';

/** Idempotency-Key on the routes that create something. */

/** How a repetition is answered. */
export type Repeats =
  /** With what is at the path of the request, or at another one, and the id; by the status of the first answer. */
  | { readonly status: 200 | 201 | 202; readonly at?: string }
  /** 409: the first answer held a secret, or nothing can be read by the id. A sentence that says what to do. */
  | { readonly instead: string }
  /** By the route itself, which does nothing the second time. */
  | { readonly again: true };

export interface OnceGuards {
  /**
   * For a route that creates something, behind `may` and the body: with an Idempotency-Key there is one. What is sent
   * again is answered with what was created, as it is now; another request with the same key is 422.
   */
  readonly once: (creates: IdPrefix, repeats: Repeats) => MiddlewareHandler<HttpEnv>;
  /** The same for a body that is read while it comes: the route asks `createdBefore` when it has come. */
  readonly onceRead: (creates: IdPrefix) => MiddlewareHandler<HttpEnv>;
  /**
   * @param content what makes two bodies the same
   * @returns the id of what the request has created before, as outsiders name it; null for the first request
   * @throws AppError unprocessable where the key stands for another request
   */
  readonly createdBefore: (context: HttpContext, content: string) => Promise<string | null>;
}

const headerName = 'idempotency-key';
const pattern = /^[\x20-\x7e]{1,255}$/;

export const onceHeaders = z.object({
  [headerName]: z
    .string()
    .regex(pattern, 'must be 1 to 255 printable ASCII characters')
    .optional()
    .openapi({
      description:
        'Of your choice: what is sent again with the same key within 24 hours creates nothing, and is answered with ' +
        'what the first request has created; where its answer held a secret with 409, which names it. Another request ' +
        'with the same key is 422.',
    }),
});

/** Requests with one Idempotency-Key. */
const turnBounds = { atOnceMax: 1, waitingMax: 100 };

/** Of keys. */
export const anotherSecret: Repeats = {
  instead: 'Its secret was in that answer only: "POST /v1/keys/{id}/rotate" gives it another one.',
};

export function createOnceGuards(
  receipts: Receipts,
  read: (context: HttpContext, path: string) => Promise<Response>,
): OnceGuards {
  const hashes = new WeakMap<HttpContext, Buffer>();
  const turns = new Turns(turnBounds);
  /** Of two requests with one key that come at once to this gateway, the second finds what the first has created. */
  const inTurn = (context: HttpContext, run: () => Promise<Response | void>): Promise<Response | void> => {
    if (context.get('created') === undefined) return run();
    const { callerId: caller, idempotencyKey } = nameOf(context);
    return turns.during(`${caller} ${idempotencyKey}`, run);
  };
  const begin = (context: HttpContext, creates: IdPrefix): void => {
    if (context.req.header(headerName) === undefined) return;
    const name = nameOf(context);
    context.set('created', async (tx, targetId) => {
      const requestHash = hashes.get(context);
      if (requestHash === undefined || !targetId.startsWith(`${creates}_`)) return;
      await receipts.writeIn(tx, name, { requestHash, requestId: context.get('requestId'), targetId });
    });
  };
  const createdBefore: OnceGuards['createdBefore'] = async (context, content) => {
    if (context.get('created') === undefined) return null;
    const requestHash = hashOf(context, content);
    hashes.set(context, requestHash);
    const receipt = await receipts.find(nameOf(context));
    if (receipt === null) return null;
    if (!receipt.requestHash.equals(requestHash)) throw otherRequest();
    context.header('idempotent-replayed', 'true');
    return receipt.targetId;
  };
  return {
    once: (creates, repeats) => (context, next) => {
      begin(context, creates);
      return inTurn(context, async () => {
        const body = context.get('body') as string | Uint8Array | undefined;
        const id = await createdBefore(context, body?.toString() ?? '');
        if (id === null || 'again' in repeats) return next();
        if ('instead' in repeats) throw wasCreated(creates, id, repeats.instead);
        const path = `${repeats.at ?? context.req.path}/${id}`;
        const found = await read(context, path);
        // What cannot be read just now can be asked for again.
        if (found.status === 429 || found.status >= 500) return found;
        if (!found.ok) throw wasCreated(creates, id, `GET ${path} answers ${found.status}.`);
        return context.json(await found.json(), repeats.status);
      });
    },
    onceRead: (creates) => (context, next) => {
      begin(context, creates);
      return inTurn(context, next);
    },
    createdBefore,
  };
}

/** Reads from the same API as the same caller, within the request that it is for. */
export function createReadAgain(app: Hono<HttpEnv>) {
  return async (context: HttpContext, path: string): Promise<Response> => {
    const url = new URL(context.req.url);
    url.pathname = path;
    const headers = new Headers(context.req.raw.headers);
    headers.delete('content-type');
    return app.fetch(new Request(url, { headers }), context.env);
  };
}

/** @throws AppError invalid_request_error */
function nameOf(context: HttpContext) {
  const idempotencyKey = context.req.header(headerName) ?? '';
  if (pattern.test(idempotencyKey)) return { callerId: callerId(context.get('caller')), idempotencyKey };
  throw new AppError('invalid_request_error', {
    message: 'Idempotency-Key: send 1 to 255 printable ASCII characters.',
    param: 'Idempotency-Key',
  });
}

/** The caller's project decides what a request creates, as the body does. Bodies may hold passwords: no plain hash. */
function hashOf(context: HttpContext, content: string): Buffer {
  const { method, url } = context.req;
  const { pathname, search } = new URL(url);
  const parts = [method, pathname, search, context.get('caller').project.id, content];
  return createHmac('sha256', nameOf(context).idempotencyKey).update(parts.join('\n')).digest();
}

const otherRequest = (): AppError =>
  new AppError('unprocessable', {
    message: 'This Idempotency-Key stands for another request; use a new one for each request.',
    param: 'Idempotency-Key',
  });

/** Rejects a repetition that cannot be answered as the first request was. */
export function wasCreated(creates: IdPrefix, id: string, instead: string): AppError {
  const message = `The ${nounOf(creates)} ${id} was created with this Idempotency-Key before, and nothing was done now. ${instead}`;
  return new AppError('conflict', { message, param: 'Idempotency-Key' });
}
