import type { MiddlewareHandler } from 'hono';
import { createThrottle, type Throttle, type ThrottleOptions } from '#base/throttle.ts';
import { createAuthenticator, type Authenticator, type AuthenticatorParts } from './authenticate.ts';
import { createBodyShares, type BodyShares } from './body-shares.ts';
import { createClientAddress, type ClientAddress } from './client-address.ts';
import type { HttpEnv, InferenceCaller } from './env.ts';
import { createHourlyLimits } from './hourly-limits.ts';

/** Requests per hour of the generic API: of a key, and of an address without one. */
const keyRequestsPerHour = 1000;
const addressRequestsPerHour = 100;
const minuteSeconds = 60;
const hourSeconds = 3600;

export interface HttpGuardsOptions
  extends Omit<AuthenticatorParts, 'guesses'>, Pick<ThrottleOptions, 'store' | 'prefix'> {
  /** Wrong keys of one address that are answered as such. */
  readonly wrongKeysPerMinute: number;
  /** Addresses and networks whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  /** Of one request body, and of all that are there at once. */
  readonly bodyBytesMax: number;
  readonly bodiesBytesMax: number;
}

export interface HttpGuards {
  readonly authenticator: Authenticator<InferenceCaller>;
  /** Stands before the generic API. */
  readonly hourlyLimits: MiddlewareHandler<HttpEnv>;
  /** The memory of bodies, of whatever route. */
  readonly shares: BodyShares;
  readonly addressOf: ClientAddress;
}

/** Keys that can fill the memory for bodies between them. */
const keysPerBudget = 4;

/** Who comes in, how often somebody may knock, and what may be brought along. */
export function createHttpGuards(options: HttpGuardsOptions): HttpGuards {
  const { keys, accounts, store, prefix, wrongKeysPerMinute, trustedProxies } = options;
  const throttle = (kind: string, limit: number, windowSeconds: number): Throttle =>
    createThrottle({ kind, limit, windowSeconds, store, prefix });
  const addressOf = createClientAddress(trustedProxies);
  const guesses = { throttle: throttle('wrong-keys', wrongKeysPerMinute, minuteSeconds), addressOf };
  const authenticator = createAuthenticator({ keys, accounts, guesses });
  const hourlyLimits = createHourlyLimits({
    authenticator,
    addressOf,
    callers: throttle('keys', keyRequestsPerHour, hourSeconds),
    scopeRefusals: throttle('scope-refusals', keyRequestsPerHour, hourSeconds),
    addresses: throttle('addresses', addressRequestsPerHour, hourSeconds),
  });
  const { bodyBytesMax, bodiesBytesMax } = options;
  const keyBytesMax = Math.max(bodyBytesMax, Math.floor(bodiesBytesMax / keysPerBudget));
  const shares = createBodyShares({ bytesMax: bodiesBytesMax, keyBytesMax });
  return { authenticator, hourlyLimits, shares, addressOf };
}
