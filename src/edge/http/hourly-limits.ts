import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { Throttle, ThrottleCount } from '#base/throttle.ts';
import type { Authenticator } from './authenticate.ts';
import type { ClientAddress } from './client-address.ts';
import type { HttpEnv, Identity } from './env.ts';
import type { RawRequest } from './raw-request.ts';
import { toAppError } from './failure.ts';

export interface HourlyLimitsParts {
  readonly authenticator: Authenticator;
  readonly addressOf: ClientAddress;
  readonly users: Throttle;
  readonly addresses: Throttle;
}

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

/**
 * Stands before every route of the generic API, and before what it does not have: every answer, refusals included,
 * shows where the hour stands. Who calls is found out here once; guards take it from the context.
 */
export function createHourlyLimits(parts: HourlyLimitsParts): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const identity = await identify(parts.authenticator, context.env.incoming);
    context.set('identity', identity);
    const { caller } = identity;
    const count =
      caller === null
        ? await parts.addresses.hit(parts.addressOf(context.env.incoming))
        : await parts.users.hit(caller.key.userId);
    const headers = headersOf(count);
    if (!count.allowed) {
      const message = `More than ${count.limit} requests in an hour.`;
      const retryAfter = String(Math.max(1, Math.ceil(count.resetMs / 1000)));
      throw new AppError('rate_limit_exceeded', { message, headers: { ...headers, 'retry-after': retryAfter } });
    }
    await next();
    for (const [name, value] of Object.entries(headers)) context.header(name, value);
  };
}
