import { createHmac } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import type { Hono, MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { IdPrefix } from '#base/id.ts';
import type { Receipt, Receipts } from '#core/stored-requests/stored-requests.ts';
import { callerId, dropFailure, type HttpContext, type HttpEnv } from '#edge/http/http.ts';
import { nounOf } from './schemas.ts';

/** Implements Idempotency-Key for routes that create something. */

/** Answer to a repeated request. */
export type Repeats =
  | {
      /**
       * Status of the first answer. The repeated answer has this status and the resource in its present state, read by
       * id at the path of the request, or at `at`.
       */
      readonly status: 200 | 201 | 202;
      readonly at?: string;
      /** True if the body may name the organization; the read then names the organization in its query. */
      readonly namesOrganization?: true;
      /** Fields to add to the resource in the answer. */
      readonly beside?: Readonly<Record<string, string>>;
    }
  /**
   * Returns 409, since the first answer contained a secret, or nothing can be read by id. `instead` is a sentence that
   * says what to do.
   */
  | { readonly instead: string }
  /** The route itself answers the repetition, and does nothing the second time. */
  | { readonly again: true };

export interface OnceGuards {
  /**
   * Middleware for a route that creates something, after `may` and the body. With an Idempotency-Key, only one resource
   * is created. The same request again returns the created resource in its present state; another request with the same
   * key returns 422. If two requests run at the same time, on any gateways, the rejected request reads the receipt of
   * the other request once more.
   */
  readonly once: (creates: IdPrefix, repeats: Repeats) => MiddlewareHandler<HttpEnv>;
  /** As `once`, for a body that is read while it arrives: the route calls `setContent` before it creates anything. */
  readonly onceRead: (creates: IdPrefix, repeats: Repeats) => MiddlewareHandler<HttpEnv>;
  /** @param content equal for two bodies that count as the same */
  readonly setContent: (context: HttpContext, content: string) => void;
  /**
   * Returns true if something was created with the key of this request; the route then rejects the request, and
   * `onceRead` answers.
   */
  readonly isRepeated: (context: HttpContext) => Promise<boolean>;
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
        'Random key of your choice. The same request within 24 hours creates nothing and returns what ' +
        'the first one created, as it is now. It returns 409 `conflict` with the id of what was created if the ' +
        'first response contained a secret, nothing can be read by that id, or it was deleted since. Another ' +
        'request with the same key returns 422.',
    }),
});

/** The repeated answer for API keys. */
export const anotherSecret: Repeats = {
  instead: 'Its secret was returned only once: "POST /v1/keys/{id}/rotate" creates a new one.',
};

export function createOnceGuards(
  receipts: Receipts,
  read: (context: HttpContext, path: string, organization: string | null) => Promise<Response>,
): OnceGuards {
  const hashes = new WeakMap<HttpContext, Buffer>();
  const hasKey = (context: HttpContext): boolean => context.req.header(headerName) !== undefined;
  const begin = (context: HttpContext, creates: IdPrefix): void => {
    const name = nameOf(context);
    context.set('created', async (tx, targetId) => {
      const requestHash = hashes.get(context);
      if (requestHash === undefined || !targetId.startsWith(`${creates}_`)) return;
      await receipts.writeIn(tx, name, { requestHash, requestId: context.get('requestId'), targetId });
    });
  };
  const setContent: OnceGuards['setContent'] = (context, content) => {
    if (hasKey(context)) hashes.set(context, hashOf(context, content));
  };
  const findOwn = (context: HttpContext): Promise<Receipt | null> =>
    findReceipt(receipts, context, hashes.get(context));
  /** Returns null if nothing was created yet, or if the route answers a repetition itself. */
  const answerRepeated = async (
    context: HttpContext,
    creates: IdPrefix,
    repeats: Repeats,
  ): Promise<Response | null> => {
    const receipt = await findOwn(context);
    if (receipt === null) return null;
    // The request was rejected, and still repeats an earlier request.
    dropFailure(context);
    context.header('idempotent-replayed', 'true');
    if ('again' in repeats) return null;
    const { targetId: id } = receipt;
    if ('instead' in repeats) throw wasCreated(creates, id, repeats.instead);
    const path = `${repeats.at ?? context.req.path}/${id}`;
    const found = await read(context, path, repeats.namesOrganization === true ? organizationIn(context) : null);
    // The client can retry if the resource cannot be read now.
    if (found.status === 429 || found.status >= 500) return found;
    if (!found.ok) throw wasCreated(creates, id, `GET ${path} returns ${found.status}.`);
    const body = (await found.json()) as object;
    return context.json({ ...body, ...repeats.beside }, repeats.status);
  };
  const onceRead: OnceGuards['onceRead'] = (creates, repeats) => async (context, next) => {
    if (!hasKey(context)) return next();
    begin(context, creates);
    await next();
    const { status } = context.res;
    if (status < 400 || status >= 500) return;
    if ('again' in repeats) return void (await findOwn(context));
    const repeated = await answerRepeated(context, creates, repeats);
    if (repeated !== null) context.res = repeated;
  };
  return {
    once(creates, repeats) {
      const run = onceRead(creates, repeats);
      return async (context, next) => {
        if (!hasKey(context)) return next();
        setContent(context, (context.get('body') as HttpEnv['Variables']['body'] | undefined)?.toString() ?? '');
        return (await answerRepeated(context, creates, repeats)) ?? run(context, next);
      };
    },
    onceRead,
    setContent,
    isRepeated: async (context) => hasKey(context) && (await receipts.find(nameOf(context))) !== null,
  };
}

/**
 * Returns the receipt for the key of this request; null if nothing was created, or if the content is not known yet.
 * @throws AppError unprocessable if another request has created something with the key
 */
async function findReceipt(receipts: Receipts, context: HttpContext, requestHash?: Buffer): Promise<Receipt | null> {
  if (requestHash === undefined) return null;
  const receipt = await receipts.find(nameOf(context));
  if (receipt === null || receipt.requestHash.equals(requestHash)) return receipt;
  dropFailure(context);
  throw otherRequest();
}

/** Returns a function that reads a path of the same API as the same caller, within the caller's request. */
export function createReadAgain(app: Hono<HttpEnv>) {
  return async (context: HttpContext, path: string, organization: string | null): Promise<Response> => {
    const url = new URL(context.req.url);
    url.pathname = path;
    if (organization !== null) url.searchParams.set('organization_id', organization);
    const headers = new Headers(context.req.raw.headers);
    headers.delete('content-type');
    return app.fetch(new Request(url, { headers }), context.env);
  };
}

/** Returns the organization that a validated body names; null if there is none. */
function organizationIn(context: HttpContext): string | null {
  const body = JSON.parse(context.get('body').toString()) as { readonly organization_id?: string };
  return body.organization_id ?? null;
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

/**
 * Returns the hash that identifies a request. The caller's project is included, since it also decides what is created.
 * Bodies may contain passwords, so the hash is keyed.
 */
function hashOf(context: HttpContext, content: string): Buffer {
  const { method, url } = context.req;
  const { pathname, search } = new URL(url);
  const parts = [method, pathname, search, context.get('caller').project.id, content];
  return createHmac('sha256', nameOf(context).idempotencyKey).update(parts.join('\n')).digest();
}

const otherRequest = (): AppError =>
  new AppError('unprocessable', {
    message: 'This Idempotency-Key was used for another request. Use a new one for each request.',
    param: 'Idempotency-Key',
  });

/** Rejects a repetition that cannot be answered as the first request was. */
function wasCreated(creates: IdPrefix, id: string, instead: string): AppError {
  const message = `The ${nounOf(creates)} ${id} was already created with this Idempotency-Key; nothing was changed. ${instead}`;
  return new AppError('conflict', { message, param: 'Idempotency-Key' });
}
