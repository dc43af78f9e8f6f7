import {
  divideLimits,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
  rollWindow,
  shiftView,
  viewLimits,
} from '#core/limits/limits.ts';
import type { UntoldUse } from './hold-leases.ts';

interface MonthOfKey {
  readonly startMs: number;
  tokens: number;
  /** As they were read, before anything was admitted here. */
  read: number;
  /** How many divide what is left. */
  readonly gateways: number;
}

/** A key as this gateway counts it alone. */
export interface LocalKey {
  readonly organizationId: string;
  readonly keyId: string;
  /** Against this gateway's part of the limits; windows in the time of Redis' clock. */
  readonly use: KeyUse;
  /** The month that is counted, and its tokens, of all gateways as far as they are known; null while they are not. */
  month: MonthOfKey | null;
  tokensPerMinute: number | null;
  /** What ran in other gateways when Redis was last heard of. */
  readonly others: { readonly running: number; readonly untilMs: number };
  /** What was admitted here and has ended in the running window, and Redis was not told of. */
  ended: { requests: number; tokens: number };
  /** Whether something was charged that Redis was not told of. */
  isCharged: boolean;
  /** What Redis is being told. */
  telling: UntoldUse | null;
}

export const isUntold = ({ ended, isCharged, telling }: LocalKey): boolean =>
  ended.requests > 0 || isCharged || telling !== null;

/** Beside what ran in other gateways there may be room for less than this gateway's part, but for one always. */
function beside({ others }: LocalKey, limits: KeyLimits, divided: KeyLimits, nowMs: number): KeyLimits {
  const { maxConcurrency: part } = divided;
  if (part === null || limits.maxConcurrency === null || others.running === 0 || nowMs > others.untilMs) return divided;
  return { ...divided, maxConcurrency: Math.max(1, Math.min(part, limits.maxConcurrency - others.running)) };
}

/** This gateway's part of a key's limits. */
export function partOfLimits(key: LocalKey, limits: KeyLimits, gateways: number, nowMs: number): KeyLimits {
  return beside(key, limits, divideLimits(limits, gateways), nowMs);
}

/** The whole limit, and what this gateway may give of it. @param aheadMs of this machine's clock before Redis' */
export function viewOfPart(
  { use }: LocalKey,
  limits: KeyLimits,
  divided: KeyLimits,
  { nowMs, aheadMs }: { readonly nowMs: number; readonly aheadMs: number },
): LimitsView {
  const { requests, tokens, ...left } = shiftView(viewLimits(use, divided, nowMs), aheadMs);
  const shown = (view: LimitsView['requests'], limit: number | null): LimitsView['requests'] =>
    view === null || limit === null ? null : { ...view, limit };
  const all = { requests: shown(requests, limits.requestsPerMinute), tokens: shown(tokens, limits.tokensPerMinute) };
  return { ...all, ...left };
}

export function rollKey(key: LocalKey, divided: KeyLimits, nowMs: number): void {
  const { windowStartMs } = key.use;
  rollWindow(key.use, divided, nowMs);
  if (key.use.windowStartMs !== windowStartMs) key.ended = { requests: 0, tokens: 0 };
}
