import type { MiddlewareHandler } from 'hono';
import { AppError, type ErrorCode } from '#base/errors.ts';
import type { Throttle, ThrottleCount } from '#base/redis/redis.ts';
import { serviceAccountIdOf, userIdOf } from '#core/audit/audit.ts';
import type { Authenticator } from './authenticate.ts';
import type { ClientAddress } from './client-address.ts';
import type { Caller, HttpEnv, Identity } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';
import { toAppError } from './failure.ts';

export interface HourlyLimitsParts {
  readonly authenticator: Authenticator;
  readonly addressOf: ClientAddress;
  /** Counts requests, by user or service account. */
  readonly callers: Throttle;
  /** Counts requests that the scope of a caller does not allow, by user or service account. */
  readonly scopeRefusals: Throttle;
  readonly addresses: Throttle;
}

/** Returns the user or service account that the caller acts for, so that more keys do not allow more requests. */
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
  const message = `The limit of ${count.limit} requests per hour is exceeded. Try again later.`;
  const retryAfter = String(Math.max(1, Math.ceil(count.resetMs / 1000)));
  throw new AppError('rate_limit_exceeded', {
    message,
    headers: { ...headersOf(count), 'retry-after': retryAfter },
    reason: 'requests_per_hour',
  });
}

/**
 * Creates the middleware before every route of the generic API, and before its unknown paths. Every answer, rejections
 * included, shows the state of the hourly limit. Each user and each service account has one limit for all its keys and
 * pages, and another limit for requests outside a key's scope: a program with the wrong key takes nothing from the
 * right key. The middleware identifies the caller once; guards read the result from the context.
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
 * Creates a function that counts a page's requests in the hour of its user, and rejects nothing: a user must be able to
 * revoke, on a page, the key that has used up the hour. Requests that a page sends by itself are not counted: an open
 * page would use up the hour of the user's programs.
 */
export function createPageCount(callers: Throttle): (caller: Caller) => Promise<void> {
  return async (caller) => void (await callers.hit(nameOf(caller)));
}
