import type { HourPrices, Scaled } from './amount.ts';
import type { UsageSource } from './interval-rows.ts';

/** A rate card as used in reports. In effect in [fromMs, toMs), milliseconds since the Unix epoch. */
export interface PricedCard extends HourPrices {
  readonly id: string;
  readonly hardwareProfile: string;
  readonly currency: string;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** The value of one unit of `from` in `to`, in effect in [fromMs, toMs). */
export interface DatedConversion {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly rate: Scaled;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** Reasons why usage has no price. No price is guessed. */
export type UnratedReason =
  /** No card covers that moment. */
  | 'no_rate_card'
  /** Several cards cover the moment, and none of their currencies is preferred. */
  | 'ambiguous_rate'
  /** A replica uses only GPUs, and the card only prices whole nodes. */
  | 'no_gpu_price';

export type ConversionStatus = 'none' | 'converted' | 'skipped_missing_rate';

/** The price of usage at one moment. */
export type Pricing =
  | { readonly rated: false; readonly key: string; readonly reason: UnratedReason }
  | {
      readonly rated: true;
      /** Equal for the same card and the same conversion, which together make one line of a report. */
      readonly key: string;
      readonly card: PricedCard;
      readonly status: ConversionStatus;
      /** Null unless the price is converted. */
      readonly conversion: DatedConversion | null;
      /** The currency to which a conversion rate is missing; null if none is. */
      readonly wanted: string | null;
    };

export interface PriceList {
  readonly cards: readonly PricedCard[];
  readonly conversions: readonly DatedConversion[];
  /** The platform's own currency: its card is used if there is none in the organization's currency. */
  readonly defaultCurrency: string;
}

/** The usage to price. */
export interface PricedUse {
  readonly source: UsageSource;
  readonly hardwareProfile: string;
  /** Null: in the currency of the card. */
  readonly billingCurrency: string | null;
}

interface Dated {
  readonly fromMs: number;
  readonly toMs: number | null;
}

const covers = ({ fromMs, toMs }: Dated, momentMs: number): boolean =>
  fromMs <= momentMs && (toMs === null || momentMs < toMs);

/** Returns the price of usage at a moment. Two cards are never added up, and rates are never inverted or chained. */
export function pricingAt(list: PriceList, use: PricedUse, momentMs: number): Pricing {
  const { source, hardwareProfile, billingCurrency } = use;
  const covering = list.cards.filter((card) => card.hardwareProfile === hardwareProfile && covers(card, momentMs));
  if (covering.length === 0) return unrated('no_rate_card');
  const fitting = source === 'replica' ? covering.filter(({ gpuHour }) => gpuHour !== null) : covering;
  if (fitting.length === 0) return unrated('no_gpu_price');
  const card =
    fitting.find(({ currency }) => currency === billingCurrency) ??
    fitting.find(({ currency }) => currency === list.defaultCurrency) ??
    (fitting.length === 1 ? fitting[0] : undefined);
  if (card === undefined) return unrated('ambiguous_rate');
  if (billingCurrency === null || billingCurrency === card.currency) return native(card, 'none', null);
  const conversion = list.conversions.find(
    (rate) => rate.from === card.currency && rate.to === billingCurrency && covers(rate, momentMs),
  );
  if (conversion === undefined) return native(card, 'skipped_missing_rate', billingCurrency);
  const key = `${card.id} ${conversion.id}`;
  return { rated: true, key, card, status: 'converted', conversion, wanted: null };
}

const unrated = (reason: UnratedReason): Pricing => ({ rated: false, key: reason, reason });

function native(card: PricedCard, status: ConversionStatus, wanted: string | null): Pricing {
  return { rated: true, key: `${card.id} ${status}`, card, status, conversion: null, wanted };
}

/**
 * Returns every moment in a window at which a price may change, and the given cuts, in milliseconds since its start; 0
 * first.
 */
export function priceBorders(
  { cards, conversions }: PriceList,
  cuts: readonly number[],
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): readonly number[] {
  const changes = [...cards, ...conversions].flatMap((dated) => [dated.fromMs, dated.toMs ?? fromMs]);
  const within = [...changes, ...cuts].filter((momentMs) => momentMs > fromMs && momentMs < toMs);
  return [...new Set([0, ...within.map((momentMs) => momentMs - fromMs)])].toSorted((a, b) => a - b);
}
