import type { SumsAnswer, UsageGroupAnswer, UsageSummaryAnswer } from '#edge/contract/usage.ts';
import {
  chart,
  count,
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
import { type LatencyMeasure, type Measure, percentiles } from './usage-measures.ts';
import { type Bucket, bucketKey, bucketsOf, type Range } from './usage-range.ts';

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
  readonly measure: Measure;
  /** Returns the address of the page with other filters. */
  readonly address: (change: Readonly<Record<string, string>>) => string;
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
  /** The period before, as long as the shown one, by day or hour; null for a measure that does not add up. */
  readonly before: UsageSummaryAnswer | null;
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
function inOrder({ data }: UsageSummaryAnswer, measure: string): readonly UsageGroupAnswer[] {
  const byCost = (a: UsageGroupAnswer, b: UsageGroupAnswer): number => Number(b.cost) - Number(a.cost);
  const byTokens = (a: UsageGroupAnswer, b: UsageGroupAnswer): number => tokensOf(b) - tokensOf(a);
  const [first, second] = measure === 'tokens' ? [byTokens, byCost] : [byCost, byTokens];
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
  { by, measure }: { readonly by: Dimension; readonly measure: string },
): readonly string[] {
  const ordered = inOrder(lines, measure);
  const shown = ordered.length > seriesMax + 1 ? ordered.slice(0, seriesMax) : ordered;
  return shown.map((group) => idOf(group, by)).filter((id) => id !== '');
}

/** Returns the part of a bucket that is in none of its series. Not below 0: the sums are read one after the other. */
const beside = (all: number, shown: readonly number[]): number =>
  Math.max(0, Number((all - shown.reduce((sum, value) => sum + value, 0)).toPrecision(12)));

export function overTime(sums: Sums, shown: SumsShown): Html {
  const { by, measure, names, range, buckets } = shown;
  const lines = inOrder(sums.lines, measure.value).map((group): Line => {
    return { id: idOf(group, by), name: nameOf(group, by, names), sums: group };
  });
  if (lines.length === 0) {
    return empty(
      'No requests in this range',
      'Choose a longer range above, or send a request with the examples on the overview.',
    );
  }
  const separate = lines.length > seriesMax + 1 ? lines.slice(0, seriesMax) : lines;
  const all = seriesOf(sums, shown, separate, lines.length - separate.length);
  const before = beforeOf(sums, shown);
  return html`<section aria-labelledby="time-title">
    <h2 id="time-title">${measure.title} over time</h2>
    ${chart({
      title: `${measure.title} by ${range.unit} and ${labelOf(by)}`,
      kind: measure.kind === 'sum' ? 'bars' : 'lines',
      unit: measure.unit,
      points: buckets.map(({ label }) => label),
      series: all,
      ...(before !== null && { before }),
      ...(range.unit === 'day' && { zoom: shown.address({}) }),
    })}
    ${sumTable(lines, separate.length, by, sums.lines)} ${bucketTable(sums.buckets, range, buckets)}
    ${barTable(all, range, buckets)}
  </section>`;
}

/** Returns the sum of each point of the period before, as long as it has the same points; null if it is not shown. */
function beforeOf({ before }: Sums, { measure, range, buckets }: SumsShown): readonly number[] | null {
  if (before === null || measure.kind !== 'sum') return null;
  const stepMs = range.unit === 'hour' ? 3_600_000 : 86_400_000;
  const lengthMs = range.toMs - range.fromMs;
  if (buckets.length * stepMs !== lengthMs) return null;
  const byKey = new Map(before.data.map((group) => [bucketKey(group), group]));
  const points = bucketsOf({ ...range, fromMs: range.fromMs - lengthMs, toMs: range.fromMs }, before.data);
  const values = points.map(({ key }) => {
    const group = byKey.get(key);
    return group === undefined ? 0 : measure.of(group);
  });
  return values.length === buckets.length && values.some((value) => value > 0) ? values : null;
}

function seriesOf(sums: Sums, shown: SumsShown, separate: readonly Line[], rest: number): readonly Series[] {
  const { by, measure, buckets } = shown;
  const byId = Map.groupBy(sums.series.data, (group) => idOf(group, by));
  const groupsOf = ({ id }: Line): readonly (UsageGroupAnswer | undefined)[] => {
    const own = new Map((byId.get(id) ?? []).map((group) => [bucketKey(group), group]));
    return buckets.map(({ key }) => own.get(key));
  };
  const [only] = separate;
  if (measure.kind === 'latency' && only !== undefined && separate.length === 1) {
    return percentiles.map((one) => latencySeries(`${only.name}: ${one}`, measure, one, groupsOf(only)));
  }
  const series = separate.map((line): Series => {
    const linked = line.id === '' || separate.length === 1 ? {} : { href: shown.address({ [filterOf(by)]: line.id }) };
    const groups = groupsOf(line);
    if (measure.kind === 'latency') {
      return { ...latencySeries(line.name, measure, measure.percentile, groups), ...linked };
    }
    const values = groups.map((group) =>
      group === undefined ? (measure.kind === 'sum' ? 0 : null) : measure.of(group),
    );
    const labels = groups.map((group, index) => {
      const value = values[index] ?? null;
      if (measure.kind === 'sum' && measure.exact !== undefined && group !== undefined) return measure.exact(group);
      return value === null ? '' : measure.format(value);
    });
    return { name: line.name, values, labels, ...linked };
  });
  if (rest === 0 || measure.kind !== 'sum') return series;
  const whole = new Map(sums.buckets.data.map((group) => [bucketKey(group), group]));
  const others = buckets.map(({ key }, index) => {
    const group = whole.get(key);
    const parts = series.map(({ values }) => values[index] ?? 0);
    return beside(group === undefined ? 0 : measure.of(group), parts);
  });
  return [...series, { name: `${rest} others`, values: others, labels: others.map(measure.format) }];
}

function latencySeries(
  name: string,
  measure: LatencyMeasure,
  percentile: (typeof percentiles)[number],
  groups: readonly (UsageGroupAnswer | undefined)[],
): Series {
  const values = groups.map((group) => group?.latency?.[measure.name]?.[percentile] ?? null);
  return { name, values, labels: values.map((value) => (value === null ? '' : measure.format(value))) };
}

/** Returns the filter of the page for a line of this dimension. */
const filterOf = (by: Dimension): string => (by === 'model' ? 'model' : by === 'key_id' ? 'key' : 'project');

const labelOf = (by: Dimension): string => dimensions.find(({ value }) => value === by)?.label ?? by;

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
  if (series.length < 2 && series.every(({ values }) => !values.includes(null))) return null;
  const rows = buckets.flatMap(({ label }, index): MaybeHtml[][] =>
    series.some(({ values }) => (values[index] ?? 0) !== 0)
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
