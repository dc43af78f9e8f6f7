import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';
import type { Change } from '#base/commits.ts';
import type { AppError, ErrorCode } from '#base/errors.ts';
import type { Extent, Principal } from '#core/accounts/accounts.ts';
import type { Author, SystemActor, UserActor } from '#core/audit/audit.ts';
import type { ApiKeyActor, KeyPrincipal } from '#core/keys/keys.ts';

/** Who calls, and for which of the organization's projects: the key's own, or the one that X-Project-ID names. */
export type Caller = Principal<ApiKeyActor | UserActor | SystemActor>;

/** Models are used with an API key and nothing else: limits, shares and usage are counted by it. */
export type InferenceCaller = KeyPrincipal;

/** Who calls the generic API (`/api/v1/…`, see `routeGroups`), or why that is not known. */
export type Identity =
  | { readonly caller: Caller; readonly refusal: null }
  | { readonly caller: null; readonly refusal: AppError };

/** What Hono's context carries here. `caller` and `extent` are there on routes that a guard stands before. */
export interface HttpEnv {
  Bindings: HttpBindings;
  Variables: {
    /** The gateway's own id of this request, a UUIDv7. */
    requestId: string;
    caller: Caller;
    /** Of what the caller may do what the route does. */
    extent: Extent;
    /** There on routes that change something. */
    change: Change;
    /** There where the request carries an Idempotency-Key. */
    created: Author['created'];
    /** There where a body was read: what the validators of the route read. */
    body: string | Uint8Array;
    /** Code of the error that is being answered, once there is one. */
    failureCode: ErrorCode | undefined;
    failureParam: string | null | undefined;
    failureReason: string | null | undefined;
    /** There on routes of the generic API. */
    identity: Identity;
  };
}

export type HttpContext = Context<HttpEnv>;

/** The caller as the one who makes a change in this request. */
export function authorOf(context: HttpContext): Author {
  const created = context.get('created');
  const author = { actor: context.get('caller').actor, requestId: context.get('requestId') };
  return created === undefined ? author : { ...author, created };
}

/** The name under which turns and shares of memory are counted: the id of the key, of the user, or `system`. */
export function callerId({ actor }: Caller): string {
  if (actor.kind === 'key') return actor.key.id;
  return actor.kind === 'user' ? actor.user.id : actor.kind;
}
