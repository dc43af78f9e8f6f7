import type { HourPrices, Scaled } from './amount.ts';
import type { UsageSource } from './interval-rows.ts';

/** A rate card as reports use it. Effective in [fromMs, toMs), milliseconds since the Unix epoch. */
export interface PricedCard extends HourPrices {
  readonly id: string;
  readonly hardwareProfile: string;
  readonly currency: string;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** What one unit of `from` is worth in `to`, in [fromMs, toMs). */
export interface DatedConversion {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly rate: Scaled;
  readonly fromMs: number;
  readonly toMs: number | null;
}

/** Why a use has no price. Nothing is guessed: it costs nothing that could be told. */
export type UnratedReason =
  /** No card covers that moment. */
  | 'no_rate_card'
  /** Several cards cover it, in currencies of which none is to be preferred. */
  | 'ambiguous_rate'
  /** A replica holds GPUs alone, and the card prices whole nodes alone. */
  | 'no_gpu_price';

export type ConversionStatus = 'none' | 'converted' | 'skipped_missing_rate';

/** What a use costs at one moment. */
export type Pricing =
  | { readonly rated: false; readonly key: string; readonly reason: UnratedReason }
  | {
      readonly rated: true;
      /** Equal for the same card and the same conversion: what a line of a report is made of. */
      readonly key: string;
      readonly card: PricedCard;
      readonly status: ConversionStatus;
      /** There when it is converted. */
      readonly conversion: DatedConversion | null;
      /** Into which a rate is missing; null otherwise. */
      readonly wanted: string | null;
    };

export interface PriceList {
  readonly cards: readonly PricedCard[];
  readonly conversions: readonly DatedConversion[];
  /** The platform's own currency: that of the card which is taken where the organization's has none. */
  readonly defaultCurrency: string;
}

/** What is priced. */
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

/** What a use costs at a moment. Two cards are never added up, and rates are never inverted or chained. */
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

/** Every moment within a window at which a price may change, as milliseconds since its begin; 0 first. */
export function priceBorders({ cards, conversions }: PriceList, fromMs: number, toMs: number): readonly number[] {
  const changes = [...cards, ...conversions].flatMap((dated) => [dated.fromMs, dated.toMs ?? fromMs]);
  const within = changes.filter((momentMs) => momentMs > fromMs && momentMs < toMs);
  return [...new Set([0, ...within.map((momentMs) => momentMs - fromMs)])].toSorted((a, b) => a - b);
}
