/**
 * The limits of a key. A minute is a window of 60 s that begins with the key's first counted request; nothing comes back inside it. Tokens
 * are reserved by estimate and corrected when the request is settled: what was used beyond the limit is debt that the
 * next windows pay off, one limit each. A month is a UTC calendar month. Null is unlimited.
 */

export interface KeyLimits {
  readonly requestsPerMinute: number | null;
  readonly maxConcurrency: number | null;
  readonly tokensPerMinute: number | null;
  readonly monthlyTokenLimit: number | null;
}

/** What was used of a minute. */
export interface WindowUse {
  /** Milliseconds since the Unix epoch at which the window began; 0 before the first counted request. */
  windowStartMs: number;
  requests: number;
  /** Tokens of this window: reserved, corrected, and debt of earlier ones. */
  tokens: number;
}

/** What a key has used. */
export interface KeyUse extends WindowUse {
  /** Tokens of the UTC month, reserved ones included; only kept for keys that have a monthly limit. */
  monthTokens: number;
  running: number;
}

export type LimitCode =
  | 'rate_limit_exceeded'
  | 'tokens_limit_exceeded'
  | 'monthly_quota_exceeded'
  | 'concurrency_limit_exceeded';

/** One limit as headers show it. */
export interface LimitView {
  readonly limit: number;
  readonly remaining: number;
  /** Milliseconds since the Unix epoch at which `remaining` is whole again. */
  readonly resetAtMs: number;
}

/** What headers say of a key's limits; null where there is none. */
export interface LimitsView {
  readonly requests: LimitView | null;
  readonly tokens: LimitView | null;
  /** What is left of the tokens of the month, and how many more requests may run at once. */
  readonly monthTokensLeft: number | null;
  readonly concurrencyLeft: number | null;
  /** Each limit of requests and tokens, where a request is bound by those of its project as well. */
  readonly each?: readonly LimitView[];
}

export interface LimitRefusal {
  readonly code: LimitCode;
  /** A sole caller that waits this long is not refused again; for concurrency an estimate. */
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

/** The one that was asked for last: every request asks, and nearly always for the same. */
let lastMonth: Month = { startMs: 0, endMs: 0 };

function monthOf(nowMs: number): Month {
  if (nowMs >= lastMonth.startMs && nowMs < lastMonth.endMs) return lastMonth;
  const date = new Date(nowMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  lastMonth = { startMs: Date.UTC(year, month, 1), endMs: Date.UTC(year, month + 1, 1) };
  return lastMonth;
}

/** First moment of the UTC month after the one of `nowMs`. */
export function nextMonthMs(nowMs: number): number {
  return monthOf(nowMs).endMs;
}

/** First moment of the UTC month of `nowMs`. */
export function monthStartMs(nowMs: number): number {
  return monthOf(nowMs).startMs;
}

/**
 * Closes a window that is over: its requests are forgotten, and each window gone by pays off one limit of tokens. One
 * that would begin later, by a clock that was set back, begins now.
 */
export function rollWindow(use: WindowUse, limits: Pick<KeyLimits, 'tokensPerMinute'>, nowMs: number): void {
  if (use.windowStartMs === 0) return;
  if (nowMs < use.windowStartMs) use.windowStartMs = nowMs;
  const windows = Math.floor((nowMs - use.windowStartMs) / windowMs);
  if (windows < 1) return;
  use.requests = 0;
  use.tokens = Math.max(0, use.tokens - windows * (limits.tokensPerMinute ?? use.tokens));
  // Debt goes on being paid at this pace until a counted request begins a window of its own.
  use.windowStartMs = use.tokens > 0 ? use.windowStartMs + windows * windowMs : 0;
}

/** Counts a request that is admitted; the first one of a window begins it. */
export function countAdmitted(use: KeyUse, nowMs: number): void {
  if (use.requests === 0) use.windowStartMs = nowMs;
  use.requests += 1;
  use.running += 1;
}

/** What a request reserves of a limit: never more than the limit itself, or it could never be admitted. */
export function reserve(estimatedTokens: number, limit: number | null): number {
  return limit === null ? 0 : Math.min(estimatedTokens, limit);
}

/**
 * Whether a request may run, beside what else the key does. The window must have been rolled.
 * @param monthEndMs of the month that `use` counts, which may be over when its refusal is told, in the time of `nowMs`
 * @returns null for yes, else the first limit that says no (month, requests, tokens, concurrency) and the wait after
 *   which none of those that say no now does
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

/** What says no to so many tokens more; null where nothing does. The window must have been rolled. */
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
 * What one of so many gateways may give of limits that all of them share, while none knows of the others: at least one
 * of each. A month is not divided by its limit, but by what is left of it; see `divideUse`.
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
 * What a key has used, as it counts against one gateway's part of its limits: what all of them have left is divided, and
 * so is their debt. The window must have been rolled.
 * @param running of this gateway
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

/** Limits for headers, as they stand now. The window must have been rolled. */
export function viewLimits(use: KeyUse, limits: KeyLimits, nowMs: number): LimitsView {
  const { requestsPerMinute, tokensPerMinute, monthlyTokenLimit, maxConcurrency } = limits;
  const endMs = windowEndMs(use, nowMs);
  const left = (limit: number | null, used: number): number | null =>
    limit === null ? null : Math.max(0, limit - used);
  return {
    requests: requestsPerMinute === null ? null : viewOf(requestsPerMinute, use.requests, endMs),
    tokens: tokensPerMinute === null ? null : viewOf(tokensPerMinute, use.tokens, endMs),
    monthTokensLeft: left(monthlyTokenLimit, use.monthTokens),
    concurrencyLeft: left(maxConcurrency, use.running),
  };
}

/** Clocks that differ by less show the same. */
const sameMs = 10;

/** The same in the time of a clock that is ahead of the one in which windows are counted. */
export function shiftView(all: LimitsView, aheadMs: number): LimitsView {
  if (Math.abs(aheadMs) < sameMs) return all;
  const { requests, tokens, ...left } = all;
  const shift = (view: LimitView | null): LimitView | null =>
    view === null ? null : { ...view, resetAtMs: view.resetAtMs + aheadMs };
  return { requests: shift(requests), tokens: shift(tokens), ...left };
}

/** The same of a refusal. */
export function shiftRefusal(refusal: LimitRefusal, aheadMs: number): LimitRefusal {
  const { view } = refusal;
  return { ...refusal, view: { ...view, resetAtMs: view.resetAtMs + aheadMs } };
}

/** A window that has not begun is whole now. */
export function windowEndMs(use: WindowUse, nowMs: number): number {
  return use.windowStartMs === 0 ? nowMs : use.windowStartMs + windowMs;
}

export function viewOf(limit: number, used: number, resetAtMs: number): LimitView {
  return { limit, remaining: Math.max(0, limit - used), resetAtMs };
}
