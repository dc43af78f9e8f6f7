import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import {
  type Authenticator,
  type Caller,
  createJsonBody,
  type HttpContext,
  type HttpEnv,
  type Identity,
  type ShowLimits,
} from '#edge/http/http.ts';

/** What stands before a route. The three that ask for a key put `caller` into the context. */
export interface Guards {
  /** Any valid key: models, usage and the wallet may be read by all of them. */
  readonly anyKey: MiddlewareHandler<HttpEnv>;
  /** A key of scope `management`: keys, projects, and everything that changes something. */
  readonly management: MiddlewareHandler<HttpEnv>;
  /** A management key of a user who administers the platform: organizations and credits. */
  readonly platformAdmin: MiddlewareHandler<HttpEnv>;
  /** Reads and checks the body, for routes that have one; after the key, so that who may not call learns nothing. */
  readonly jsonBody: MiddlewareHandler<HttpEnv>;
}

function requireManagement({ key }: Caller): void {
  if (key.scope !== 'management') throw new AppError('insufficient_scope');
}

function requirePlatformAdmin(caller: Caller): void {
  requireManagement(caller);
  if (caller.key.platformAdmin) return;
  throw new AppError('insufficient_scope', {
    message: 'This API key may not do this: it takes a management key of a platform administrator.',
  });
}

/** Whom the limits of the generic API have found. @throws AppError what they found instead */
function knownCaller(context: HttpContext): Caller | null {
  const identity: Identity | undefined = context.get('identity');
  if (identity === undefined) return null;
  if (identity.refusal !== null) throw identity.refusal;
  return identity.caller;
}

export interface GuardParts {
  readonly authenticator: Authenticator;
  readonly showLimits: ShowLimits;
  /** How long the next part of a body may take. */
  readonly bodyStallTimeoutMs: number;
}

export function createGuards({ authenticator, showLimits, bodyStallTimeoutMs }: GuardParts): Guards {
  const guard =
    (check: (caller: Caller) => void): MiddlewareHandler<HttpEnv> =>
    async (context, next) => {
      const caller = knownCaller(context) ?? (await authenticator.authenticate(context.env.incoming));
      for (const [name, value] of Object.entries(await showLimits(caller))) context.header(name, value);
      check(caller);
      context.set('caller', caller);
      await next();
    };
  return {
    anyKey: guard(() => undefined),
    management: guard(requireManagement),
    platformAdmin: guard(requirePlatformAdmin),
    jsonBody: createJsonBody(bodyStallTimeoutMs),
  };
}
