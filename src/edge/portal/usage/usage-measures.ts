import type { UsageGroupAnswer } from '#edge/contract/usage.ts';
import { count, counted, milliseconds, usd } from '#edge/portal/ui/ui.ts';

/** Measures of the chart of the usage page. */

type Percentile = 'p50' | 'p95' | 'p99';
export const percentiles: readonly Percentile[] = ['p50', 'p95', 'p99'];
type LatencyName = keyof NonNullable<UsageGroupAnswer['latency']>;

interface Shape {
  readonly value: string;
  readonly label: string;
  readonly title: string;
  /** Formats a value of the scale. The script formats its own scale by `unit`. */
  readonly format: (value: number) => string;
  readonly unit: 'usd' | 'count' | 'share' | 'ms';
}

export interface SumMeasure extends Shape {
  /** Values that add up: stacked bars. */
  readonly kind: 'sum';
  readonly of: (group: UsageGroupAnswer) => number;
  /** The exact value, where `of` rounds. */
  readonly exact?: (group: UsageGroupAnswer) => string;
}

export interface ShareMeasure extends Shape {
  readonly kind: 'share';
  readonly of: (group: UsageGroupAnswer) => number | null;
}

export interface LatencyMeasure extends Shape {
  readonly kind: 'latency';
  readonly name: LatencyName;
  /** Shown for each line; of a single line, all are shown. */
  readonly percentile: Percentile;
}

export type Measure = SumMeasure | ShareMeasure | LatencyMeasure;

const errorsOf = ({ outcomes, refusals }: UsageGroupAnswer): number =>
  outcomes.failed + outcomes.ended + Object.values(refusals).reduce((sum, value) => sum + value, 0);

const shareOf = (part: number, whole: number): number | null => (whole === 0 ? null : part / whole);
const perSecond = (value: number): string => `${count(value)} tokens/s`;

export const measures: readonly [SumMeasure, ...Measure[]] = [
  {
    kind: 'sum',
    value: 'cost',
    label: 'spend',
    title: 'Spend',
    unit: 'usd',
    of: ({ cost }) => Number(cost),
    exact: ({ cost }) => usd(cost),
    format: (value) => (value === 0 ? '$0.00' : `about $${Number(value.toPrecision(3))}`),
  },
  {
    kind: 'sum',
    value: 'tokens',
    label: 'tokens',
    title: 'Tokens',
    unit: 'count',
    of: ({ input_tokens, output_tokens }) => input_tokens + output_tokens,
    format: (value) => counted(value, 'token'),
  },
  {
    kind: 'sum',
    value: 'requests',
    label: 'requests',
    title: 'Requests',
    unit: 'count',
    of: ({ num_model_requests }) => num_model_requests,
    format: (value) => counted(value, 'request'),
  },
  {
    kind: 'sum',
    value: 'errors',
    label: 'errors',
    title: 'Failed, ended and rejected requests',
    unit: 'count',
    of: errorsOf,
    format: (value) => counted(value, 'request'),
  },
  {
    kind: 'share',
    value: 'cached',
    label: 'cached input',
    title: 'Share of cached input tokens',
    unit: 'share',
    of: ({ input_tokens, input_cached_tokens }) => shareOf(input_cached_tokens, input_tokens),
    format: (value) => `${(value * 100).toFixed(1)} %`,
  },
  {
    kind: 'latency',
    value: 'first-token',
    label: 'time to first token',
    title: 'Time to first token',
    unit: 'ms',
    name: 'first_byte_ms',
    percentile: 'p95',
    format: (value) => milliseconds(Math.round(value)),
  },
  {
    kind: 'latency',
    value: 'speed',
    label: 'tokens per second',
    title: 'Output tokens per second',
    unit: 'count',
    name: 'tokens_per_second',
    percentile: 'p50',
    format: perSecond,
  },
  {
    kind: 'latency',
    value: 'queued',
    label: 'wait for capacity',
    title: 'Wait for capacity',
    unit: 'ms',
    name: 'queued_ms',
    percentile: 'p95',
    format: (value) => milliseconds(Math.round(value)),
  },
];

export const measureOf = (value: string): Measure => measures.find((one) => one.value === value) ?? measures[0];
