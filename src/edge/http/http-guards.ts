import type { MiddlewareHandler } from 'hono';
import { createThrottle, type Throttle, type ThrottleOptions } from '#base/redis/redis.ts';
import { type AuthenticatorParts, createAuthenticator, type InferenceAuthenticator } from './authenticate.ts';
import { type BodyShares, createBodyShares } from './body-shares.ts';
import { type ClientAddress, createClientAddress, createWholeAddress } from './client-address.ts';
import type { Caller, HttpEnv } from './http-context.ts';
import { createHourlyLimits, createPageCount } from './hourly-limits.ts';

/** Requests per hour of the generic API (`/api/v1/…`), per user, and per address whose caller is not known. */
const userRequestsPerHour = 1000;
const addressRequestsPerHour = 100;
const minuteSeconds = 60;
const hourSeconds = 3600;

export interface HttpGuardsOptions
  extends Omit<AuthenticatorParts, 'wrongKeys'>, Pick<ThrottleOptions, 'store' | 'prefix'> {
  /** Wrong keys per minute and address that are answered with 401. Further wrong keys get 429. */
  readonly wrongKeysPerMinute: number;
  /** Addresses and networks whose X-Forwarded-For is trusted. */
  readonly trustedProxies: readonly string[];
  /** Most bytes of one request body. */
  readonly bodyBytesMax: number;
  /** Most bytes of all request bodies in memory at the same time. */
  readonly bodiesBytesMax: number;
}

export interface HttpGuards {
  readonly authenticator: InferenceAuthenticator;
  /** Middleware that counts requests of the generic API. */
  readonly hourlyLimits: MiddlewareHandler<HttpEnv>;
  /** Counts the requests of pages, in place of `hourlyLimits`. */
  readonly countPage: (caller: Caller) => Promise<void>;
  /** Memory of the bodies of all routes. */
  readonly shares: BodyShares;
  /** Returns the address that requests are counted by. */
  readonly addressOf: ClientAddress;
  /** Counts invalid cookies and links of web addresses, by address. */
  readonly wrongEntrances: Throttle;
  /** Returns the full address of a client, for reports of where a request comes from. */
  readonly wholeAddressOf: ClientAddress;
}

/** Fraction of the memory for bodies that one caller may use: a quarter. */
const callersPerBudget = 4;

/** Creates the guards before every HTTP surface: who calls, how often, and how much memory bodies may take. */
export function createHttpGuards(options: HttpGuardsOptions): HttpGuards {
  const { keys, accounts, budgetCache, store, prefix, wrongKeysPerMinute, trustedProxies } = options;
  const throttle = (kind: string, limit: number, windowSeconds: number): Throttle =>
    createThrottle({ kind, limit, windowSeconds, store, prefix });
  const addressOf = createClientAddress(trustedProxies);
  const wrongKeys = { throttle: throttle('wrong-keys', wrongKeysPerMinute, minuteSeconds), addressOf };
  const authenticator = createAuthenticator({ keys, accounts, budgetCache, wrongKeys });
  const callers = throttle('users', userRequestsPerHour, hourSeconds);
  const hourlyLimits = createHourlyLimits({
    authenticator,
    addressOf,
    callers,
    scopeRefusals: throttle('scope-refusals', userRequestsPerHour, hourSeconds),
    addresses: throttle('addresses', addressRequestsPerHour, hourSeconds),
  });
  const { bodyBytesMax, bodiesBytesMax } = options;
  const callerBytesMax = Math.max(bodyBytesMax, Math.floor(bodiesBytesMax / callersPerBudget));
  const shares = createBodyShares({ bytesMax: bodiesBytesMax, callerBytesMax });
  const wrongEntrances = throttle('wrong-entrances', wrongKeysPerMinute, minuteSeconds);
  return {
    authenticator,
    hourlyLimits,
    countPage: createPageCount(callers),
    shares,
    addressOf,
    wrongEntrances,
    wholeAddressOf: createWholeAddress(trustedProxies),
  };
}
