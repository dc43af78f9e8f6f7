/**
 * Limits of an API key; null is unlimited. A minute is a window of 60 s that begins with the key's first counted
 * request; within a window nothing is restored. Tokens are reserved by estimate and corrected when the request is
 * settled. Tokens used beyond the limit are debt: each later window pays off one limit. A month is a UTC calendar
 * month.
 */

export interface KeyLimits {
  readonly requestsPerMinute: number | null;
  readonly maxConcurrency: number | null;
  readonly tokensPerMinute: number | null;
  readonly monthlyTokenLimit: number | null;
}

/** Usage in one minute's window. */
export interface WindowUse {
  /** Start of the window in milliseconds since the Unix epoch; 0 before the first counted request. */
  windowStartMs: number;
  requests: number;
  /** Tokens of this window: reserved and corrected tokens, and debt of earlier windows. */
  tokens: number;
}

/** Usage of a key. */
export interface KeyUse extends WindowUse {
  /** Tokens of the UTC month, including reserved ones; counted only for keys with a monthly limit. */
  monthTokens: number;
  running: number;
}

export type LimitCode =
  | 'rate_limit_exceeded'
  | 'tokens_limit_exceeded'
  | 'monthly_quota_exceeded'
  | 'concurrency_limit_exceeded';

/** One limit as response headers show it. */
export interface LimitView {
  readonly limit: number;
  readonly remaining: number;
  /** Time when `remaining` is full again, in milliseconds since the Unix epoch. */
  readonly resetAtMs: number;
}

/** A key's limits as response headers show them; null without a limit. */
export interface LimitsView {
  readonly requests: LimitView | null;
  readonly tokens: LimitView | null;
  /** Tokens left in the month; `concurrencyLeft` is the number of further requests that may run at once. */
  readonly monthTokensLeft: number | null;
  readonly concurrencyLeft: number | null;
  /** All limits of requests and tokens, if the limits of the request's project apply as well. */
  readonly each?: readonly LimitView[];
}

export interface LimitRefusal {
  readonly code: LimitCode;
  /** Time after which a sole caller is not rejected again; an estimate for concurrency. */
  readonly retryAfterMs: number;
  readonly view: LimitView;
}

export const windowMs = 60_000;
const concurrencyRetryMs = 1000;

export const unusedKey = (): KeyUse => ({ windowStartMs: 0, requests: 0, tokens: 0, monthTokens: 0, running: 0 });

interface Month {
  readonly startMs: number;
  readonly endMs: number;
}

/** The month of the last call: every request needs the month, and nearly always the same one. */
let lastMonth: Month = { startMs: 0, endMs: 0 };

function monthOf(nowMs: number): Month {
  if (nowMs >= lastMonth.startMs && nowMs < lastMonth.endMs) return lastMonth;
  const date = new Date(nowMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  lastMonth = { startMs: Date.UTC(year, month, 1), endMs: Date.UTC(year, month + 1, 1) };
  return lastMonth;
}

/** Returns the first moment of the UTC month after `nowMs`. */
export function nextMonthMs(nowMs: number): number {
  return monthOf(nowMs).endMs;
}

/** Returns the first moment of the UTC month that contains `nowMs`. */
export function monthStartMs(nowMs: number): number {
  return monthOf(nowMs).startMs;
}

/**
 * Closes a window that has ended: resets its requests, and pays off one limit of tokens per elapsed window. A window
 * that starts in the future, because a clock was set back, starts now.
 */
export function rollWindow(use: WindowUse, limits: Pick<KeyLimits, 'tokensPerMinute'>, nowMs: number): void {
  if (use.windowStartMs === 0) return;
  if (nowMs < use.windowStartMs) use.windowStartMs = nowMs;
  const windows = Math.floor((nowMs - use.windowStartMs) / windowMs);
  if (windows < 1) return;
  use.requests = 0;
  use.tokens = Math.max(0, use.tokens - windows * (limits.tokensPerMinute ?? use.tokens));
  // Windows continue at this pace while debt is left, until a counted request begins a new window.
  use.windowStartMs = use.tokens > 0 ? use.windowStartMs + windows * windowMs : 0;
}

/** Counts an admitted request; the first request of a window starts the window. */
export function countAdmitted(use: KeyUse, nowMs: number): void {
  if (use.requests === 0) use.windowStartMs = nowMs;
  use.requests += 1;
  use.running += 1;
}

/**
 * Returns the tokens that a request reserves: at most the limit, since the request could never be admitted otherwise.
 */
export function reserve(estimatedTokens: number, limit: number | null): number {
  return limit === null ? 0 : Math.min(estimatedTokens, limit);
}

/**
 * Checks whether a request may run, given the key's usage. The window must have been rolled.
 * @param monthEndMs end of the month that `use` counts, in the clock of `nowMs`; it may have passed already
 * @returns null if the request may run; else the first limit that rejects it (month, requests, tokens, concurrency) and
 * the wait until none of the limits that reject it now does
 */
export function refuseByLimits(
  use: KeyUse,
  limits: KeyLimits,
  estimatedTokens: number,
  { nowMs, monthEndMs }: { readonly nowMs: number; readonly monthEndMs: number },
): LimitRefusal | null {
  const { maxConcurrency, requestsPerMinute, monthlyTokenLimit } = limits;
  const refusals: Refused[] = [];
  if (monthlyTokenLimit !== null && use.monthTokens + reserve(estimatedTokens, monthlyTokenLimit) > monthlyTokenLimit) {
    const view = viewOf(monthlyTokenLimit, use.monthTokens, monthEndMs);
    refusals.push({ code: 'monthly_quota_exceeded', view });
  }
  if (requestsPerMinute !== null && use.requests >= requestsPerMinute) {
    const view = viewOf(requestsPerMinute, use.requests, windowEndMs(use, nowMs));
    refusals.push({ code: 'rate_limit_exceeded', view });
  }
  const tokens = tokensRefused(use, limits.tokensPerMinute, estimatedTokens, nowMs);
  if (tokens !== null) refusals.push({ code: 'tokens_limit_exceeded', view: tokens });
  if (maxConcurrency !== null && use.running >= maxConcurrency) {
    const view = viewOf(maxConcurrency, use.running, nowMs + concurrencyRetryMs);
    refusals.push({ code: 'concurrency_limit_exceeded', view });
  }
  const [first] = refusals;
  if (first === undefined) return null;
  const freeAtMs = Math.max(...refusals.map(({ view }) => view.resetAtMs));
  return { ...first, retryAfterMs: Math.max(1, freeAtMs - nowMs) };
}

type Refused = Pick<LimitRefusal, 'code' | 'view'>;

/** Returns the limit that rejects the estimated tokens; null if none does. The window must have been rolled. */
export function tokensRefused(
  use: WindowUse,
  limit: number | null,
  estimatedTokens: number,
  nowMs: number,
): LimitView | null {
  if (limit === null) return null;
  const over = use.tokens + reserve(estimatedTokens, limit) - limit;
  if (over <= 0) return null;
  const windows = Math.ceil(over / limit);
  const freeAtMs = windowEndMs(use, nowMs) + (windows - 1) * windowMs;
  return viewOf(limit, use.tokens, freeAtMs);
}

/**
 * Returns one gateway's part of shared limits, for gateways that cannot see each other's counts: at least one of each.
 * A month's limit is not divided; the rest of the month is, see `divideUse`.
 */
export function divideLimits(limits: KeyLimits, gateways: number): KeyLimits {
  const divide = (limit: number | null): number | null =>
    limit === null ? null : Math.max(1, Math.floor(limit / gateways));
  return {
    requestsPerMinute: divide(limits.requestsPerMinute),
    maxConcurrency: divide(limits.maxConcurrency),
    tokensPerMinute: divide(limits.tokensPerMinute),
    monthlyTokenLimit: limits.monthlyTokenLimit,
  };
}

/**
 * Returns a key's usage relative to one gateway's part of the limits: the rest of all limits is divided, and so is
 * debt. The window must have been rolled.
 * @param running running requests on this gateway
 */
export function divideUse(use: KeyUse, limits: KeyLimits, gateways: number, running: number): KeyUse {
  const divided = divideLimits(limits, gateways);
  const usedOf = (limit: number | null, part: number | null, used: number): number => {
    if (limit === null || part === null) return 0;
    const left = limit - used;
    return part - (left > 0 ? Math.min(part, Math.max(1, Math.floor(left / gateways))) : Math.floor(left / gateways));
  };
  return {
    windowStartMs: use.windowStartMs,
    requests: usedOf(limits.requestsPerMinute, divided.requestsPerMinute, use.requests),
    tokens: usedOf(limits.tokensPerMinute, divided.tokensPerMinute, use.tokens),
    monthTokens: usedOf(limits.monthlyTokenLimit, divided.monthlyTokenLimit, use.monthTokens),
    running,
  };
}

/** Returns the current limits for headers. The window must have been rolled. */
export function viewLimits(use: KeyUse, limits: KeyLimits, nowMs: number): LimitsView {
  const { requestsPerMinute, tokensPerMinute, monthlyTokenLimit, maxConcurrency } = limits;
  const endMs = windowEndMs(use, nowMs);
  const left = (limit: number | null, used: number): number | null =>
    limit === null ? null : Math.max(0, limit - used);
  return {
    requests: requestsPerMinute === null ? null : viewOf(requestsPerMinute, use.requests, endMs),
    tokens:
      tokensPerMinute === null ? null : viewOf(tokensPerMinute, use.tokens, tokensResetMs(use, tokensPerMinute, nowMs)),
    monthTokensLeft: left(monthlyTokenLimit, use.monthTokens),
    concurrencyLeft: left(maxConcurrency, use.running),
  };
}

/** Clock differences below this many milliseconds are ignored. */
const sameMs = 10;

/** Converts a view to a clock that is ahead of the clock for windows. */
export function shiftView(all: LimitsView, aheadMs: number): LimitsView {
  if (Math.abs(aheadMs) < sameMs) return all;
  const { requests, tokens, ...left } = all;
  const shift = (view: LimitView | null): LimitView | null =>
    view === null ? null : { ...view, resetAtMs: view.resetAtMs + aheadMs };
  return { requests: shift(requests), tokens: shift(tokens), ...left };
}

/** Converts a rejection to a clock that is ahead of the clock for windows. */
export function shiftRefusal(refusal: LimitRefusal, aheadMs: number): LimitRefusal {
  const { view } = refusal;
  return { ...refusal, view: { ...view, resetAtMs: view.resetAtMs + aheadMs } };
}

/**
 * Returns when all tokens of a minute are left again, in milliseconds since the Unix epoch: each window pays off one
 * limit. The window must have been rolled.
 */
export function tokensResetMs(use: WindowUse, limit: number, nowMs: number): number {
  return windowEndMs(use, nowMs) + Math.max(0, Math.ceil(use.tokens / limit) - 1) * windowMs;
}

/** Returns the end of a window; now if the window has not begun, since all of it is available. */
export function windowEndMs(use: WindowUse, nowMs: number): number {
  return use.windowStartMs === 0 ? nowMs : use.windowStartMs + windowMs;
}

export function viewOf(limit: number, used: number, resetAtMs: number): LimitView {
  return { limit, remaining: Math.max(0, limit - used), resetAtMs };
}
