import type { HttpBindings } from '@hono/node-server';
import type { Context } from 'hono';
import type { AppError, ErrorCode } from '#base/errors.ts';
import type { Project } from '#core/accounts/accounts.ts';
import type { Actor } from '#core/audit/audit.ts';
import type { ApiKey } from '#core/keys/keys.ts';

/** Who calls, and for which of the organization's projects: the key's own, or the one that X-Project-ID names. */
export interface Caller {
  readonly key: ApiKey;
  readonly project: Project;
}

/** Who calls the generic API, or why that is not known. */
export type Identity =
  | { readonly caller: Caller; readonly refusal: null }
  | { readonly caller: null; readonly refusal: AppError };

/** What Hono's context carries here. `caller` is there on routes that a guard stands before. */
export interface HttpEnv {
  Bindings: HttpBindings;
  Variables: {
    /** The gateway's own id of this request, a UUIDv7. */
    requestId: string;
    caller: Caller;
    /** Code of the error that is being answered, once there is one. */
    failureCode: ErrorCode;
    /** There on routes of the generic API. */
    identity: Identity;
  };
}

export type HttpContext = Context<HttpEnv>;

/** The caller as the one who makes a change. */
export function actorOf(context: HttpContext): Actor {
  const { key } = context.get('caller');
  return { userId: key.userId, keyId: key.id, requestId: context.get('requestId') };
}
