/** A rate in effect in [fromMs, toMs), milliseconds since the Unix epoch; indefinitely while toMs is null. */
export interface DatedRate {
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** The requested dates of a rate; `fromMs` null is now. */
export interface DatedRequest {
  readonly fromMs: number | null;
  readonly toMs: number | null;
  /** Allows a start or an end in the past, which changes reports that have been read already. */
  readonly retroactive: boolean;
}

export type Placement<Rate> =
  /** `ended` is the rate without an end, which now ends where the new one starts; null if there is none. */
  { readonly kind: 'placed'; readonly fromMs: number; readonly ended: Rate | null } | DatedRefusal<Rate>;

export type DatedRefusal<Rate> =
  | { readonly kind: 'overlap'; readonly with: Rate }
  /** The request has no `retroactive`. */
  | { readonly kind: 'in_the_past'; readonly nowMs: number }
  /** The rate would end before or at its start. */
  | { readonly kind: 'empty' };

/**
 * Places a new rate among those of its series. Rates never change: a rate without an end is ended where the new one
 * starts; any other overlap is rejected.
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
  // A rate that was ended before its start is never in effect.
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
  /** The rate ends at that moment already, or before. */
  | { readonly kind: 'already_ended'; readonly toMs: number }
  | { readonly kind: 'in_the_past'; readonly nowMs: number };

/** Returns when a rate ends. A rate that has not started yet ends at its start, and is never in effect. */
export function endRate(rate: DatedRate, { atMs, retroactive }: EndRequest, nowMs: number): Ending {
  const toMs = Math.max(atMs ?? nowMs, rate.fromMs);
  if (rate.toMs !== null && rate.toMs <= toMs) return { kind: 'already_ended', toMs: rate.toMs };
  if (toMs < nowMs && !retroactive) return { kind: 'in_the_past', nowMs };
  return { kind: 'ends', toMs };
}
