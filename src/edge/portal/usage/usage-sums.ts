import type { SumsAnswer, UsageGroupAnswer, UsageSummaryAnswer } from '#edge/contract/usage.ts';
import {
  barChart,
  count,
  counted,
  empty,
  figures,
  html,
  type Html,
  mark,
  type MaybeHtml,
  type Series,
  table,
  usd,
} from '#edge/portal/ui/ui.ts';
import { type Bucket, bucketKey, type Range } from './usage-range.ts';

/** Sums of usage over a span: figures, a chart, and tables with the same numbers. */

/** Most series of the chart. The rest is one more series. */
const seriesMax = 5;

export const dimensions = [
  { value: 'model', label: 'model' },
  { value: 'key_id', label: 'key' },
  { value: 'project_id', label: 'project' },
] as const;
export type Dimension = (typeof dimensions)[number]['value'];

export interface Names {
  readonly keys: ReadonlyMap<string, string>;
  readonly projects: ReadonlyMap<string, string>;
}

export interface SumsShown {
  readonly by: Dimension;
  readonly measure: 'cost' | 'tokens';
  readonly names: Names;
  readonly range: Range;
  readonly buckets: readonly Bucket[];
}

export function totals({ totals: sums }: UsageSummaryAnswer): Html {
  const refused = refusedOf(sums);
  return figures([
    { label: 'Spend', value: usd(sums.cost) },
    {
      label: 'Requests',
      value: count(sums.num_model_requests),
      note: refused === 0 ? 'none rejected' : html`<a href="#rejected-title">${count(refused)} more rejected</a>`,
    },
    {
      label: 'Input tokens',
      value: count(sums.input_tokens),
      note: `${count(sums.input_cached_tokens)} cached`,
    },
    {
      label: 'Output tokens',
      value: count(sums.output_tokens),
      note: `${count(sums.output_reasoning_tokens)} reasoning`,
    },
  ]);
}

/** Three groupings of the same usage. */
export interface Sums {
  /** Grouped by the chosen dimension, such as models. */
  readonly lines: UsageSummaryAnswer;
  /** Grouped by day or hour. */
  readonly buckets: UsageSummaryAnswer;
  /** Grouped by both, for the lines that the chart shows separately. */
  readonly series: UsageSummaryAnswer;
}

interface Line {
  readonly id: string;
  readonly name: string;
  readonly sums: UsageGroupAnswer;
}

function nameOf(group: UsageGroupAnswer, by: Dimension, { keys, projects }: Names): string {
  if (by === 'model') return group.model ?? 'no model';
  const id = by === 'key_id' ? group.key_id : group.project_id;
  return (by === 'key_id' ? keys : projects).get(id ?? '') ?? id ?? 'none';
}

const refusedOf = ({ refusals }: SumsAnswer): number => Object.values(refusals).reduce((sum, value) => sum + value, 0);

const tokensOf = ({ input_tokens, output_tokens }: SumsAnswer): number => input_tokens + output_tokens;

const idOf = (group: UsageGroupAnswer, by: Dimension): string =>
  (by === 'model' ? group.model : by === 'key_id' ? group.key_id : group.project_id) ?? '';

/** Sorts the groups of models, keys or projects by spending or tokens, largest first. */
function inOrder({ data }: UsageSummaryAnswer, measure: SumsShown['measure']): readonly UsageGroupAnswer[] {
  const byCost = (a: UsageGroupAnswer, b: UsageGroupAnswer): number => Number(b.cost) - Number(a.cost);
  const byTokens = (a: UsageGroupAnswer, b: UsageGroupAnswer): number => tokensOf(b) - tokensOf(a);
  const [first, second] = measure === 'cost' ? [byCost, byTokens] : [byTokens, byCost];
  return data.toSorted((a, b) => first(a, b) || second(a, b) || b.num_model_requests - a.num_model_requests);
}

/** True if the chart has a series for each line. */
export const isEachShown = ({ data }: UsageSummaryAnswer): boolean => data.length <= seriesMax + 1;

/**
 * Ids of the largest lines, which the chart shows separately. Requests that were rejected before their model was known
 * have no id and are left out.
 */
export function idsShown(
  lines: UsageSummaryAnswer,
  { by, measure }: Pick<SumsShown, 'by' | 'measure'>,
): readonly string[] {
  const ordered = inOrder(lines, measure);
  const shown = ordered.length > seriesMax + 1 ? ordered.slice(0, seriesMax) : ordered;
  return shown.map((group) => idOf(group, by)).filter((id) => id !== '');
}

/** Returns the part of a bucket that is in none of its series. Not below 0: the sums are read one after the other. */
const beside = (all: number, shown: readonly number[]): number =>
  Math.max(0, Number((all - shown.reduce((sum, value) => sum + value, 0)).toPrecision(12)));

export function overTime(sums: Sums, { by, measure, names, range, buckets }: SumsShown): Html {
  const lines = inOrder(sums.lines, measure).map((group): Line => {
    return { id: idOf(group, by), name: nameOf(group, by, names), sums: group };
  });
  if (lines.length === 0) {
    return empty(
      'No requests in this range',
      'Choose a longer range above, or send a request with the examples on the overview.',
    );
  }
  const shown = lines.length > seriesMax + 1 ? lines.slice(0, seriesMax) : lines;
  const rest = lines.length - shown.length;
  const valueOf = (group: UsageGroupAnswer | undefined): number =>
    group === undefined ? 0 : measure === 'cost' ? Number(group.cost) : tokensOf(group);
  const byId = Map.groupBy(sums.series.data, (group) => idOf(group, by));
  const series = shown.map(({ id, name }) => {
    const own = new Map((byId.get(id) ?? []).map((group) => [bucketKey(group), group]));
    const groups = buckets.map(({ key }) => own.get(key));
    return {
      name,
      values: groups.map(valueOf),
      labels: groups.map((group) => (measure === 'cost' ? usd(group?.cost ?? '0') : counted(valueOf(group), 'token'))),
    };
  });
  const whole = new Map(sums.buckets.data.map((group) => [bucketKey(group), group]));
  const others = buckets.map(({ key }, index) =>
    beside(
      valueOf(whole.get(key)),
      series.map(({ values }) => values[index] ?? 0),
    ),
  );
  const all =
    rest === 0
      ? series
      : [
          ...series,
          {
            name: `${rest} others`,
            values: others,
            labels: others.map((value) => (measure === 'cost' ? `about $${value}` : counted(value, 'token'))),
          },
        ];
  const scale = (value: number): string =>
    measure === 'cost' ? `$${Number(value.toPrecision(3))}` : shortCount(value);
  const title = `${measure === 'cost' ? 'Spend' : 'Tokens'} by ${range.unit} and ${labelOf(by)}; the table below has the numbers`;
  return html`<section aria-labelledby="time-title">
    <h2 id="time-title">${measure === 'cost' ? 'Spend' : 'Tokens'} over time</h2>
    ${barChart({ title, bars: buckets.map(({ label }) => label), series: all, scale })}
    ${sumTable(lines, shown.length, by, sums.lines)} ${bucketTable(sums.buckets, range, buckets)}
    ${barTable(all, range, buckets)}
  </section>`;
}

const labelOf = (by: Dimension): string => dimensions.find(({ value }) => value === by)?.label ?? by;

function shortCount(value: number): string {
  if (value >= 1_000_000) return `${Number((value / 1_000_000).toPrecision(3))}M`;
  return value >= 1000 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(3)));
}

function sumTable(lines: readonly Line[], marked: number, by: Dimension, { totals: all }: UsageSummaryAnswer): Html {
  const label = labelOf(by);
  const numbers = (sums: SumsAnswer): string[] => [
    count(sums.num_model_requests),
    count(refusedOf(sums)),
    count(tokensOf(sums)),
    usd(sums.cost),
  ];
  return table({
    caption: `Sums by ${label}`,
    columns: [
      { title: `${label.slice(0, 1).toUpperCase()}${label.slice(1)}` },
      { title: 'Requests', isNumber: true },
      { title: 'Rejected', isNumber: true },
      { title: 'Tokens', isNumber: true },
      { title: 'Spend', isNumber: true },
    ],
    rows: lines.map(({ name, sums }, index) => [html`${mark(Math.min(index, marked))}${name}`, ...numbers(sums)]),
    foot: ['Total', ...numbers(all)],
  });
}

const firstColumn = ({ unit }: Range): string => (unit === 'day' ? 'Day (UTC)' : 'Hour');

/** Shows each bar's parts as a table. Returns null if bars have one part, because the table by day or hour shows it. */
function barTable(series: readonly Series[], range: Range, buckets: readonly Bucket[]): MaybeHtml {
  if (series.length < 2) return null;
  const rows = buckets.flatMap(({ label }, index): MaybeHtml[][] =>
    series.some(({ values }) => values[index] !== 0)
      ? [[label, ...series.map(({ labels }) => labels[index] ?? '')]]
      : [],
  );
  const columns = [{ title: firstColumn(range) }, ...series.map(({ name }) => ({ title: name, isNumber: true }))];
  return html`<details class="fold">
    <summary>Values of each bar</summary>
    ${table({ caption: 'Chart values', columns, rows: rows.toReversed() })}
  </details>`;
}

/** Shows the bars as a table, with a row for each day or hour that has usage. */
function bucketTable({ data }: UsageSummaryAnswer, range: Range, buckets: readonly Bucket[]): Html {
  const { unit } = range;
  const groups = new Map(data.map((group) => [bucketKey(group), group]));
  const rows = buckets.toReversed().flatMap(({ key, label }): MaybeHtml[][] => {
    const group = groups.get(key);
    if (group === undefined) return [];
    const { num_model_requests, input_tokens, output_tokens, cost } = group;
    return [[label, count(num_model_requests), count(input_tokens), count(output_tokens), usd(cost)]];
  });
  return html`<details class="fold">
    <summary>Sums by ${unit}</summary>
    ${table({ caption: `Sums by ${unit} (UTC)`, columns: [{ title: firstColumn(range) }, { title: 'Requests', isNumber: true }, { title: 'Input tokens', isNumber: true }, { title: 'Output tokens', isNumber: true }, { title: 'Spend', isNumber: true }], rows })}
  </details>`;
}
