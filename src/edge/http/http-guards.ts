import type { MiddlewareHandler } from 'hono';
import { createThrottle, type Throttle, type ThrottleOptions } from '#base/throttle.ts';
import { createAuthenticator, type AuthenticatorParts, type InferenceAuthenticator } from './authenticate.ts';
import { createBodyShares, type BodyShares } from './body-shares.ts';
import { createClientAddress, createWholeAddress, type ClientAddress } from './client-address.ts';
import type { Caller, HttpEnv } from './http-context.ts';
import { createHourlyLimits, createPageCount } from './hourly-limits.ts';

/** Requests per hour of the generic API (`/api/v1/…`): of one user, and of one address whose caller is not known. */
const userRequestsPerHour = 1000;
const addressRequestsPerHour = 100;
const minuteSeconds = 60;
const hourSeconds = 3600;

export interface HttpGuardsOptions
  extends Omit<AuthenticatorParts, 'wrongKeys'>, Pick<ThrottleOptions, 'store' | 'prefix'> {
  /** Wrong keys of one address in a minute that are answered with 401; the next ones get 429. */
  readonly wrongKeysPerMinute: number;
  /** Addresses and networks whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  /** Bytes of one request body. */
  readonly bodyBytesMax: number;
  /** Bytes of all request bodies that are there at once. */
  readonly bodiesBytesMax: number;
}

export interface HttpGuards {
  readonly authenticator: InferenceAuthenticator;
  /** Stands before the generic API. */
  readonly hourlyLimits: MiddlewareHandler<HttpEnv>;
  /** In its place where a page asks. */
  readonly countPage: (caller: Caller) => Promise<void>;
  /** The memory of bodies, of whatever route. */
  readonly shares: BodyShares;
  /** What requests are counted by. */
  readonly addressOf: ClientAddress;
  /** Cookies and links of web addresses that are none, by address. */
  readonly wrongEntrances: Throttle;
  /** What is told of where a request comes from. */
  readonly wholeAddressOf: ClientAddress;
}

/** One caller may have a quarter of the memory for bodies. */
const callersPerBudget = 4;

/** What stands before every HTTP surface: who calls, how often, and how much memory bodies may take. */
export function createHttpGuards(options: HttpGuardsOptions): HttpGuards {
  const { keys, accounts, budgetBook, store, prefix, wrongKeysPerMinute, trustedProxies } = options;
  const throttle = (kind: string, limit: number, windowSeconds: number): Throttle =>
    createThrottle({ kind, limit, windowSeconds, store, prefix });
  const addressOf = createClientAddress(trustedProxies);
  const wrongKeys = { throttle: throttle('wrong-keys', wrongKeysPerMinute, minuteSeconds), addressOf };
  const authenticator = createAuthenticator({ keys, accounts, budgetBook, wrongKeys });
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
