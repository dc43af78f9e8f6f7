/** Fields of the API's cost reports that pages read. */

export interface AmountAnswer {
  readonly currency: string;
  readonly amount: string;
}

export interface HoursAnswer {
  readonly node_hours: number;
  readonly gpu_hours: number;
  readonly unrated_hours: number;
  readonly unrated_gpu_hours: number;
}

export interface CostLineAnswer {
  readonly hardware_profile: string;
  readonly from: string;
  readonly to: string;
  readonly node_hours: number;
  readonly gpu_hours: number;
  readonly rated: boolean;
  readonly unrated_reason: 'no_rate_card' | 'ambiguous_rate' | 'no_gpu_price' | null;
  readonly native:
    | (AmountAnswer & { readonly node_hour_price: string | null; readonly gpu_hour_price: string | null })
    | null;
  readonly billed: AmountAnswer | null;
  readonly conversion: 'none' | 'converted' | 'skipped_missing_rate';
  readonly conversion_rate: string | null;
  readonly estimated: boolean;
}

export interface ClusterCostsAnswer extends HoursAnswer {
  readonly id: string;
  readonly name: string;
  readonly source: 'node' | 'replica';
  readonly running: boolean;
  readonly estimated: boolean;
  readonly amounts: readonly AmountAnswer[];
  readonly line_items: readonly CostLineAnswer[];
}

export interface OrganizationCostsAnswer extends HoursAnswer {
  readonly id: string;
  readonly name: string;
  readonly billing_currency: string | null;
  readonly amounts: readonly AmountAnswer[];
  readonly clusters: readonly ClusterCostsAnswer[];
}

export interface CostWarningAnswer {
  readonly code: 'CONVERSION_RATE_MISSING' | 'RATE_CARD_MISSING' | 'AMBIGUOUS_RATE' | 'GPU_PRICE_MISSING';
  readonly from?: string;
  readonly to?: string;
  readonly hardware_profile?: string;
}

interface WindowAnswer {
  readonly from: string;
  readonly to: string;
  readonly tz: string;
  readonly as_of: string;
}

export interface CostReportAnswer {
  readonly window: WindowAnswer;
  readonly totals: HoursAnswer;
  readonly grand_total: readonly AmountAnswer[];
  readonly organizations: readonly OrganizationCostsAnswer[];
  readonly warnings: readonly CostWarningAnswer[];
}

interface DatedAnswer {
  readonly id: string;
  readonly effective_from: string;
  readonly effective_to: string | null;
}

export interface RateCardAnswer extends DatedAnswer {
  readonly hardware_profile: string;
  readonly currency: string;
  readonly node_hour: string | null;
  readonly gpu_hour: string | null;
}

export interface ConversionRateAnswer extends DatedAnswer {
  readonly from: string;
  readonly to: string;
  readonly rate: string;
}

export interface MarginAnswer {
  readonly model: string;
  readonly requests: number;
  readonly revenue: string;
  readonly cost: string;
  readonly complete: boolean;
  readonly margin: string | null;
  readonly margin_ratio: number | null;
  readonly gpu_hours: { readonly held: number; readonly unrated: number };
  readonly shares: { readonly busy: number; readonly idle: number; readonly starting: number } | null;
  readonly cost_per_million_tokens: string | null;
  readonly break_even: { readonly factor: number | null } | null;
}

export interface MarginsAnswer {
  readonly window: WindowAnswer;
  readonly totals: {
    readonly revenue: string;
    readonly cost: string;
    readonly complete: boolean;
    readonly margin: string | null;
  };
  readonly models: readonly MarginAnswer[];
  readonly warnings: readonly { readonly code: 'REQUESTS_NOT_KEPT'; readonly kept_from: string }[];
}

/** Returns "EUR 1,204.50", with the digits as the API sends them. */
export function amountText({ currency, amount }: AmountAnswer): string {
  const isNegative = amount.startsWith('-');
  const [whole = '0', fraction = ''] = (isNegative ? amount.slice(1) : amount).split('.');
  const digits = fraction === '' ? '' : `.${fraction}`;
  return `${isNegative ? '−' : ''}${currency} ${BigInt(whole).toLocaleString('en-US')}${digits}`;
}

/** Lists amounts by currency. Amounts of different currencies are never added. */
export function amountsText(amounts: readonly AmountAnswer[]): string {
  return amounts.length === 0 ? 'no costs' : amounts.map(amountText).join(' + ');
}
