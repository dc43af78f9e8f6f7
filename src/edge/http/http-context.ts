import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';
import type { Change } from '#base/database/database.ts';
import type { AppError, ErrorCode } from '#base/errors.ts';
import type { Extent, Principal } from '#core/accounts/accounts.ts';
import type { Author, SystemActor, UserActor } from '#core/audit/audit.ts';
import type { ApiKeyActor, KeyPrincipal } from '#core/keys/keys.ts';

/** The caller, and the project of the organization: the key's own project, or the project that X-Project-ID names. */
export type Caller = Principal<ApiKeyActor | UserActor | SystemActor>;

/** The caller of a model. Only API keys may use models: limits, shares and usage are counted by key. */
export type InferenceCaller = KeyPrincipal;

/** The caller of the generic API (`/api/v1/…`, see `routeGroups`), or the reason why the caller is not known. */
export type Identity =
  | { readonly caller: Caller; readonly refusal: null }
  | { readonly caller: null; readonly refusal: AppError };

/** Variables of Hono's context. `caller` and `extent` are set on routes behind a guard. */
export interface HttpEnv {
  Bindings: HttpBindings;
  Variables: {
    /** The gateway's own id of this request, a UUIDv7. */
    requestId: string;
    caller: Caller;
    /** The resources on which the caller may do what the route does. */
    extent: Extent;
    /** Set on routes that change something. */
    change: Change;
    /** Set if the request carries an Idempotency-Key. */
    created: Author['created'];
    /** Set if a body was read: the input of the route's validators. */
    body: string | Uint8Array;
    /** Code of the error that is being answered, once there is an error. */
    failureCode: ErrorCode | undefined;
    failureParam: string | null | undefined;
    failureReason: string | null | undefined;
    /** Set on routes of the generic API. */
    identity: Identity;
  };
}

export type HttpContext = Context<HttpEnv>;

/** Returns the caller as the author of a change in this request. */
export function authorOf(context: HttpContext): Author {
  const created = context.get('created');
  const author = { actor: context.get('caller').actor, requestId: context.get('requestId') };
  return created === undefined ? author : { ...author, created };
}

/**
 * Returns the name under which open requests and shares of memory are counted: the id of the key, of the user, or
 * `system`.
 */
export function callerId({ actor }: Caller): string {
  if (actor.kind === 'key') return actor.key.id;
  return actor.kind === 'user' ? actor.user.id : actor.kind;
}
