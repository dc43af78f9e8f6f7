import { createHmac } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import type { Hono, MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { IdPrefix } from '#base/id.ts';
import type { Receipt, Receipts } from '#core/requests/requests.ts';
import { callerId, dropFailure, type HttpContext, type HttpEnv } from '#edge/http/http.ts';
import { nounOf } from './schemas.ts';

/** Idempotency-Key on the routes that create something. */

/** How a repetition is answered. */
export type Repeats =
  | {
      /** With what is at the path of the request, or at another one, and the id; by the status of the first answer. */
      readonly status: 200 | 201 | 202;
      readonly at?: string;
      /** The body may name the organization, which the query does where it is read. */
      readonly namesOrganization?: true;
      /** Members that the answer of this route has beside what is read. */
      readonly beside?: Readonly<Record<string, string>>;
    }
  /** 409: the first answer held a secret, or nothing can be read by the id. A sentence that says what to do. */
  | { readonly instead: string }
  /** By the route itself, which does nothing the second time. */
  | { readonly again: true };

export interface OnceGuards {
  /**
   * For a route that creates something, behind `may` and the body: with an Idempotency-Key there is one. What is sent
   * again is answered with what was created, as it is now; another request with the same key is 422. Of two requests
   * that come at once, to whichever gateways, the one that is refused looks for the receipt of the other once more.
   */
  readonly once: (creates: IdPrefix, repeats: Repeats) => MiddlewareHandler<HttpEnv>;
  /** The same for a body that is read while it comes: the route sets its content before it creates anything. */
  readonly onceRead: (creates: IdPrefix, repeats: Repeats) => MiddlewareHandler<HttpEnv>;
  /** @param content what makes two bodies the same */
  readonly setContent: (context: HttpContext, content: string) => void;
  /** Finds out whether something was created with the key of this request: then the route refuses it by `repeated`. */
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

/** Of keys. */
export const anotherSecret: Repeats = {
  instead: 'Its secret was in that answer only: "POST /v1/keys/{id}/rotate" gives it another one.',
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
  /** Null where nothing was created yet, and where the route answers a repetition itself. */
  const answerRepeated = async (
    context: HttpContext,
    creates: IdPrefix,
    repeats: Repeats,
  ): Promise<Response | null> => {
    const receipt = await findOwn(context);
    if (receipt === null) return null;
    // A request that was refused, and repeats another one all the same.
    dropFailure(context);
    context.header('idempotent-replayed', 'true');
    if ('again' in repeats) return null;
    const { targetId: id } = receipt;
    if ('instead' in repeats) throw wasCreated(creates, id, repeats.instead);
    const path = `${repeats.at ?? context.req.path}/${id}`;
    const found = await read(context, path, repeats.namesOrganization === true ? organizationIn(context) : null);
    // What cannot be read just now can be asked for again.
    if (found.status === 429 || found.status >= 500) return found;
    if (!found.ok) throw wasCreated(creates, id, `GET ${path} answers ${found.status}.`);
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
 * The receipt of what was created with the key of this request; null where nothing was, and before its content is known.
 * @throws AppError unprocessable where another request has created something with the key
 */
async function findReceipt(receipts: Receipts, context: HttpContext, requestHash?: Buffer): Promise<Receipt | null> {
  if (requestHash === undefined) return null;
  const receipt = await receipts.find(nameOf(context));
  if (receipt === null || receipt.requestHash.equals(requestHash)) return receipt;
  dropFailure(context);
  throw otherRequest();
}

/** Reads from the same API as the same caller, within the request that it is for. */
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

/** The organization that a body names, which was accepted before. */
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
function wasCreated(creates: IdPrefix, id: string, instead: string): AppError {
  const message = `The ${nounOf(creates)} ${id} was created with this Idempotency-Key before, and nothing was done now. ${instead}`;
  return new AppError('conflict', { message, param: 'Idempotency-Key' });
}
