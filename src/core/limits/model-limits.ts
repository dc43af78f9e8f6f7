import {
  divideLimits,
  divideUse,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
  type LimitView,
  rollWindow,
  tokensRefused,
  viewOf,
  windowEndMs,
  type WindowUse,
} from './key-limits.ts';

/**
 * The limits of a model in a project. A minute is a window as that of a key is, tokens are reserved and corrected in the
 * same way. A day is one of UTC: a request counts in that in which it was admitted. Null is unlimited.
 */
export interface ModelLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly requestsPerDay: number | null;
}

export type ModelLimitName = keyof ModelLimits;

/** What a project has used of a model. */
export interface ModelUse extends WindowUse {
  /** First moment of the UTC day that `dayRequests` counts; null while that is not known. */
  dayMs: number | null;
  dayRequests: number;
}

export interface ModelRefusal {
  readonly name: ModelLimitName;
  /** A sole caller that waits this long is not refused again. */
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

/** First moment of the UTC day of `nowMs`. */
export const dayStartMs = (nowMs: number): number => nowMs - (nowMs % dayLengthMs);

/** First moment of the UTC day after the one of `nowMs`. */
export const nextDayMs = (nowMs: number): number => dayStartMs(nowMs) + dayLengthMs;

/** Of the day that is counted, which may be over when it is told. */
const dayEndMs = ({ dayMs }: ModelUse, hereMs: number): number => nextDayMs(dayMs ?? hereMs);

/**
 * Closes a window and a day that are over: of a day that comes after one that is known all is known. A clock that was
 * set back says nothing of the day that is then.
 * @param nowMs by the clock in which windows are counted
 * @param hereMs by the one that everybody sees
 */
export function rollModel(use: ModelUse, limits: ModelLimits, nowMs: number, hereMs: number): void {
  rollWindow(use, limits, nowMs);
  const todayMs = dayStartMs(hereMs);
  if (use.dayMs === null || use.dayMs === todayMs) return;
  use.dayMs = use.dayMs < todayMs ? todayMs : null;
  use.dayRequests = 0;
}

/** Counts a request that is admitted. */
export function countOfModel(use: ModelUse, nowMs: number): void {
  if (use.requests === 0) use.windowStartMs = nowMs;
  use.requests += 1;
  if (use.dayMs !== null) use.dayRequests += 1;
}

/**
 * Whether a request may run beside what else the project asks of the model. Window and day must have been rolled, and
 * the day be known where it is limited.
 * @returns null for yes, else the limit that says no for longest, in the time of the clock that everybody sees
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

/** Limits of a model in a project as they stand: of minute and day `requests` is the one of which less is left. */
export interface ModelView extends Pick<LimitsView, 'requests' | 'tokens'> {
  readonly each: readonly LimitView[];
}

/**
 * As headers show it, in the time of the clock that everybody sees.
 * @param limits that hold here: a part of the whole ones, where these are divided
 * @param whole as they are shown
 */
export function viewModel(
  use: ModelUse,
  limits: ModelLimits,
  { nowMs, hereMs }: { readonly nowMs: number; readonly hereMs: number },
  whole: ModelLimits = limits,
): ModelView {
  const endMs = windowEndMs(use, nowMs) + hereMs - nowMs;
  const view = (name: ModelLimitName, used: number, resetAtMs: number): LimitView | null => {
    const limit = limits[name];
    return limit === null ? null : { ...viewOf(limit, used, resetAtMs), limit: whole[name] ?? limit };
  };
  const minute = view('requestsPerMinute', use.requests, endMs);
  const day = use.dayMs === null ? null : view('requestsPerDay', use.dayRequests, dayEndMs(use, hereMs));
  const tokens = view('tokensPerMinute', use.tokens, endMs);
  return { requests: tighter(minute, day), tokens, each: [minute, day, tokens].filter((one) => one !== null) };
}

/** Of what limits a request the one of which less is left; where that is the same, the one that comes back later. */
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

/** A day is divided as the month of a key is: not by its limit, but by what is left of it. */
const asOfKey = ({ requestsPerMinute, tokensPerMinute, requestsPerDay }: ModelLimits): KeyLimits => ({
  requestsPerMinute,
  tokensPerMinute,
  maxConcurrency: null,
  monthlyTokenLimit: requestsPerDay,
});

/** What one of so many gateways may give, as `divideLimits` says it for a key. */
export function divideModelLimits(limits: ModelLimits, gateways: number): ModelLimits {
  const { requestsPerMinute, tokensPerMinute } = divideLimits(asOfKey(limits), gateways);
  return { requestsPerMinute, tokensPerMinute, requestsPerDay: limits.requestsPerDay };
}

/** What was used as it counts against one gateway's part, as `divideUse` says it for a key. Window and day must have been rolled. */
export function divideModelUse(use: ModelUse, limits: ModelLimits, gateways: number): ModelUse {
  const { windowStartMs, requests, tokens, dayMs, dayRequests } = use;
  const asUse: KeyUse = { windowStartMs, requests, tokens, monthTokens: dayRequests, running: 0 };
  const divided = divideUse(asUse, asOfKey(limits), gateways, 0);
  const { requests: ofPart, tokens: tokensOfPart, monthTokens } = divided;
  const day = { dayMs: limits.requestsPerDay === null ? null : dayMs, dayRequests: monthTokens };
  return { windowStartMs, requests: ofPart, tokens: tokensOfPart, ...day };
}
