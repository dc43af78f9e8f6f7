import type { MiddlewareHandler } from 'hono';
import { AppError, type ErrorCode } from '#base/errors.ts';
import type { Throttle, ThrottleCount } from '#base/throttle.ts';
import { serviceAccountIdOf, userIdOf } from '#core/audit/audit.ts';
import type { Authenticator } from './authenticate.ts';
import type { ClientAddress } from './client-address.ts';
import type { Caller, HttpEnv, Identity } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';
import { toAppError } from './failure.ts';

export interface HourlyLimitsParts {
  readonly authenticator: Authenticator;
  readonly addressOf: ClientAddress;
  /** By user. */
  readonly callers: Throttle;
  /** What the scope of a caller does not allow, by user. */
  readonly scopeRefusals: Throttle;
  readonly addresses: Throttle;
}

/** Of whom the caller acts for: more keys are not more requests. */
const nameOf = ({ actor }: Caller): string => userIdOf(actor) ?? serviceAccountIdOf(actor) ?? actor.kind;

async function identify(authenticator: Authenticator, request: RawRequest): Promise<Identity> {
  try {
    return { caller: await authenticator.authenticate(request), refusal: null };
  } catch (error) {
    return { caller: null, refusal: toAppError(error) };
  }
}

function headersOf({ limit, remaining, resetMs }: ThrottleCount): Record<string, string> {
  return {
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(Math.ceil((Date.now() + resetMs) / 1000)),
  };
}

function requireAllowed(count: ThrottleCount): void {
  if (count.allowed) return;
  const message = `More than ${count.limit} requests in an hour.`;
  const retryAfter = String(Math.max(1, Math.ceil(count.resetMs / 1000)));
  throw new AppError('rate_limit_exceeded', {
    message,
    headers: { ...headersOf(count), 'retry-after': retryAfter },
    reason: 'requests_per_hour',
  });
}

/**
 * Stands before every route of the generic API, and before what it does not have: every answer, refusals included,
 * shows where the hour stands. Each user, and each service account, has one, over all keys that act for him and his pages, and another one for what
 * the scope of a key does not allow: a program that asks with the wrong key takes nothing from the right one. Who calls
 * is found out here once; guards take it from the context.
 */
export function createHourlyLimits(parts: HourlyLimitsParts): MiddlewareHandler<HttpEnv> {
  const { callers, scopeRefusals, addresses } = parts;
  return async (context, next) => {
    const identity = await identify(parts.authenticator, context.env.incoming);
    context.set('identity', identity);
    const name = identity.caller === null ? null : nameOf(identity.caller);
    let count = name === null ? await addresses.hit(parts.addressOf(context.env.incoming)) : await callers.hit(name);
    requireAllowed(count);
    await next();
    const failureCode: ErrorCode | undefined = context.get('failureCode');
    if (name !== null && failureCode === 'insufficient_scope') {
      await callers.giveBack(name);
      count = await scopeRefusals.hit(name);
      requireAllowed(count);
    }
    for (const [name, value] of Object.entries(headersOf(count))) context.header(name, value);
  };
}

/**
 * Counts what a page asks for its user in his hour, and refuses nothing: the key that has spent the hour is revoked on
 * a page. What a page asks by itself is not counted: one that is left open would spend the hour of his programs.
 */
export function createPageCount(callers: Throttle): (caller: Caller) => Promise<void> {
  return async (caller) => void (await callers.hit(nameOf(caller)));
}
