import {
  divideLimits,
  divideUse,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
  type LimitView,
  rollWindow,
  tokensRefused,
  tokensResetMs,
  viewOf,
  windowEndMs,
  type WindowUse,
} from './key-limits.ts';

/**
 * Limits of a model in a project; null is unlimited. A minute is a window as for keys; tokens are reserved and
 * corrected as for keys. A day is a UTC day: a request counts in the day in which it was admitted.
 */
export interface ModelLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly requestsPerDay: number | null;
}

export type ModelLimitName = keyof ModelLimits;

/** A project's usage of a model. */
export interface ModelUse extends WindowUse {
  /** First moment of the UTC day that `dayRequests` counts; null while the count is unknown. */
  dayMs: number | null;
  dayRequests: number;
}

export interface ModelRefusal {
  readonly name: ModelLimitName;
  /** Time after which a sole caller is not rejected again. */
  readonly retryAfterMs: number;
  readonly view: LimitView;
}

const dayLengthMs = 86_400_000;

export const unusedModel = (): ModelUse => ({
  windowStartMs: 0,
  requests: 0,
  tokens: 0,
  dayMs: null,
  dayRequests: 0,
});

/** Returns the first moment of the UTC day that contains `nowMs`. */
export const dayStartMs = (nowMs: number): number => nowMs - (nowMs % dayLengthMs);

/** Returns the first moment of the UTC day after `nowMs`. */
export const nextDayMs = (nowMs: number): number => dayStartMs(nowMs) + dayLengthMs;

/** Returns the end of the counted day, which may have passed already. */
const dayEndMs = ({ dayMs }: ModelUse, hereMs: number): number => nextDayMs(dayMs ?? hereMs);

/**
 * Closes a window and a day that have ended. If the previous day's count was known, the new day's count is known to be
 * zero. If the clock was set back to an earlier day, the count of that day is unknown.
 * @param nowMs time by the clock for windows
 * @param hereMs time by the public clock
 */
export function rollModel(use: ModelUse, limits: ModelLimits, nowMs: number, hereMs: number): void {
  rollWindow(use, limits, nowMs);
  const todayMs = dayStartMs(hereMs);
  if (use.dayMs === null || use.dayMs === todayMs) return;
  use.dayMs = use.dayMs < todayMs ? todayMs : null;
  use.dayRequests = 0;
}

/** Counts an admitted request. */
export function countOfModel(use: ModelUse, nowMs: number): void {
  if (use.requests === 0) use.windowStartMs = nowMs;
  use.requests += 1;
  if (use.dayMs !== null) use.dayRequests += 1;
}

/**
 * Checks whether a request may run, given the project's usage of the model. Window and day must have been rolled, and
 * the day's count must be known if the day is limited.
 * @returns null if the request may run; else the limit that rejects it longest, in the time of the public clock
 */
export function refuseByModel(
  use: ModelUse,
  limits: ModelLimits,
  estimatedTokens: number,
  { nowMs, hereMs }: { readonly nowMs: number; readonly hereMs: number },
): ModelRefusal | null {
  const { requestsPerMinute, tokensPerMinute, requestsPerDay } = limits;
  const refusals: Pick<ModelRefusal, 'name' | 'view'>[] = [];
  const here = (view: LimitView): LimitView => ({ ...view, resetAtMs: view.resetAtMs + hereMs - nowMs });
  if (requestsPerDay !== null && use.dayRequests >= requestsPerDay) {
    const view = viewOf(requestsPerDay, use.dayRequests, dayEndMs(use, hereMs));
    refusals.push({ name: 'requestsPerDay', view });
  }
  if (requestsPerMinute !== null && use.requests >= requestsPerMinute) {
    const view = here(viewOf(requestsPerMinute, use.requests, windowEndMs(use, nowMs)));
    refusals.push({ name: 'requestsPerMinute', view });
  }
  const tokens = tokensRefused(use, tokensPerMinute, estimatedTokens, nowMs);
  if (tokens !== null) refusals.push({ name: 'tokensPerMinute', view: here(tokens) });
  const [longest] = refusals.toSorted((one, other) => other.view.resetAtMs - one.view.resetAtMs);
  if (longest === undefined) return null;
  return { ...longest, retryAfterMs: Math.max(1, longest.view.resetAtMs - hereMs) };
}

/** Limits of a model in a project now. `requests` is the limit per minute or per day, whichever has less left. */
export interface ModelView extends Pick<LimitsView, 'requests' | 'tokens'> {
  readonly each: readonly LimitView[];
}

/**
 * Returns the limits as headers show them, in the time of the public clock.
 * @param limits limits that apply here: a part of the whole limits if they are divided
 * @param whole limits that are shown
 */
export function viewModel(
  use: ModelUse,
  limits: ModelLimits,
  { nowMs, hereMs }: { readonly nowMs: number; readonly hereMs: number },
  whole: ModelLimits = limits,
): ModelView {
  const aheadMs = hereMs - nowMs;
  const tokensEndMs = tokensResetMs(use, limits.tokensPerMinute ?? 1, nowMs);
  const view = (name: ModelLimitName, used: number, resetAtMs: number): LimitView | null => {
    const limit = limits[name];
    return limit === null ? null : { ...viewOf(limit, used, resetAtMs), limit: whole[name] ?? limit };
  };
  const minute = view('requestsPerMinute', use.requests, windowEndMs(use, nowMs) + aheadMs);
  const day = use.dayMs === null ? null : view('requestsPerDay', use.dayRequests, dayEndMs(use, hereMs));
  const tokens = view('tokensPerMinute', use.tokens, tokensEndMs + aheadMs);
  return { requests: tighter(minute, day), tokens, each: [minute, day, tokens].filter((one) => one !== null) };
}

/** Returns for each limit the view with less left; if equal, the view that resets later. */
export function tighterView(all: LimitsView, { requests, tokens, each }: ModelView): LimitsView {
  return {
    ...all,
    requests: tighter(all.requests, requests),
    tokens: tighter(all.tokens, tokens),
    each: [all.requests, all.tokens, ...each].filter((one) => one !== null),
  };
}

function tighter(one: LimitView | null, other: LimitView | null): LimitView | null {
  if (one === null || other === null) return one ?? other;
  if (one.remaining !== other.remaining) return one.remaining < other.remaining ? one : other;
  return one.resetAtMs >= other.resetAtMs ? one : other;
}

/** A day is divided as a key's month: not the limit, but the rest of the day. */
const asOfKey = ({ requestsPerMinute, tokensPerMinute, requestsPerDay }: ModelLimits): KeyLimits => ({
  requestsPerMinute,
  tokensPerMinute,
  maxConcurrency: null,
  monthlyTokenLimit: requestsPerDay,
});

/** Returns one gateway's part of the limits, as `divideLimits` does for a key. */
export function divideModelLimits(limits: ModelLimits, gateways: number): ModelLimits {
  const { requestsPerMinute, tokensPerMinute } = divideLimits(asOfKey(limits), gateways);
  return { requestsPerMinute, tokensPerMinute, requestsPerDay: limits.requestsPerDay };
}

/**
 * Returns the usage relative to one gateway's part, as `divideUse` does for a key. Window and day must have been
 * rolled.
 */
export function divideModelUse(use: ModelUse, limits: ModelLimits, gateways: number): ModelUse {
  const { windowStartMs, requests, tokens, dayMs, dayRequests } = use;
  const asUse: KeyUse = { windowStartMs, requests, tokens, monthTokens: dayRequests, running: 0 };
  const divided = divideUse(asUse, asOfKey(limits), gateways, 0);
  const { requests: ofPart, tokens: tokensOfPart, monthTokens } = divided;
  const day = { dayMs: limits.requestsPerDay === null ? null : dayMs, dayRequests: monthTokens };
  return { windowStartMs, requests: ofPart, tokens: tokensOfPart, ...day };
}
