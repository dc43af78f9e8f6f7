/** What holds from a moment on: [fromMs, toMs), milliseconds since the Unix epoch; for good while toMs is null. */
export interface DatedRate {
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** When a rate is to hold; `fromMs` null is now. */
export interface DatedRequest {
  readonly fromMs: number | null;
  readonly toMs: number | null;
  /** Lets it begin, or another end, in the past, which changes reports that have been read already. */
  readonly retroactive: boolean;
}

export type Placement<Rate> =
  /** `ended` is the one that goes on until then, and ends where the new one begins; null where there is none. */
  { readonly kind: 'placed'; readonly fromMs: number; readonly ended: Rate | null } | DatedRefusal<Rate>;

export type DatedRefusal<Rate> =
  | { readonly kind: 'overlap'; readonly with: Rate }
  /** Without `retroactive`. */
  | { readonly kind: 'in_the_past'; readonly nowMs: number }
  /** It would end before it begins, or as it begins. */
  | { readonly kind: 'empty' };

/**
 * Where a new rate fits among those of its series. Rates are never changed: one that is to hold for good is ended where
 * the new one begins, any other overlap is refused.
 */
export function placeRate<Rate extends DatedRate>(
  series: readonly Rate[],
  { fromMs: wantedMs, toMs, retroactive }: DatedRequest,
  nowMs: number,
): Placement<Rate> {
  const fromMs = wantedMs ?? nowMs;
  if (toMs !== null && toMs <= fromMs) return { kind: 'empty' };
  if (fromMs < nowMs && !retroactive) return { kind: 'in_the_past', nowMs };
  const [overlapping, ...others] = series.filter((rate) => overlaps(rate, fromMs, toMs));
  if (overlapping === undefined) return { kind: 'placed', fromMs, ended: null };
  const isFollowed = others.length === 0 && overlapping.toMs === null && overlapping.fromMs < fromMs;
  return isFollowed ? { kind: 'placed', fromMs, ended: overlapping } : { kind: 'overlap', with: overlapping };
}

function overlaps(rate: DatedRate, fromMs: number, toMs: number | null): boolean {
  // One that was ended before it began never holds.
  if (rate.toMs !== null && rate.toMs <= rate.fromMs) return false;
  return (toMs === null || rate.fromMs < toMs) && (rate.toMs === null || fromMs < rate.toMs);
}

export interface EndRequest {
  /** Null is now. */
  readonly atMs: number | null;
  readonly retroactive: boolean;
}

export type Ending =
  | { readonly kind: 'ends'; readonly toMs: number }
  /** It ends then, or has before. */
  | { readonly kind: 'already_ended'; readonly toMs: number }
  | { readonly kind: 'in_the_past'; readonly nowMs: number };

/** When a rate ends that is to be ended. One that has not begun yet is ended as it begins, and never holds. */
export function endRate(rate: DatedRate, { atMs, retroactive }: EndRequest, nowMs: number): Ending {
  const toMs = Math.max(atMs ?? nowMs, rate.fromMs);
  if (rate.toMs !== null && rate.toMs <= toMs) return { kind: 'already_ended', toMs: rate.toMs };
  if (toMs < nowMs && !retroactive) return { kind: 'in_the_past', nowMs };
  return { kind: 'ends', toMs };
}
