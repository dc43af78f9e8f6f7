import type { SummaryAnswer, SummaryGroupAnswer, SumsAnswer } from './answers.ts';
import { barChart, mark } from './chart.ts';
import { count, counted, sumOfUsd, usd } from './format.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { empty, figures, table } from './ui.ts';
import { type Bucket, bucketKey, type Range } from './usage-range.ts';

/** Sums of usage over a span: figures, a chart, and the same numbers in tables. */

/** Beyond these the rest is one series. */
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

export function totals({ totals: sums }: SummaryAnswer): Html {
  const refused = refusedOf(sums);
  return figures([
    { label: 'Spend', value: usd(sums.cost) },
    {
      label: 'Requests',
      value: count(sums.num_model_requests),
      note: refused === 0 ? 'none refused' : `${counted(refused, 'more')} refused`,
    },
    {
      label: 'Input tokens',
      value: count(sums.input_tokens),
      note: `${count(sums.input_cached_tokens)} of them cached`,
    },
    {
      label: 'Output tokens',
      value: count(sums.output_tokens),
      note: `${count(sums.output_reasoning_tokens)} of them reasoning`,
    },
  ]);
}

interface Line {
  readonly name: string;
  readonly days: ReadonlyMap<string, SummaryGroupAnswer>;
  readonly cost: string;
  readonly tokens: number;
  readonly requests: number;
  readonly refused: number;
}

function nameOf(group: SummaryGroupAnswer, by: Dimension, { keys, projects }: Names): string {
  if (by === 'model') return group.model ?? 'no model';
  const id = by === 'key_id' ? group.key_id : group.project_id;
  return (by === 'key_id' ? keys : projects).get(id ?? '') ?? id ?? 'none';
}

const refusedOf = ({ refusals }: SumsAnswer): number => Object.values(refusals).reduce((sum, value) => sum + value, 0);

const tokensOf = ({ input_tokens, output_tokens }: SummaryGroupAnswer): number => input_tokens + output_tokens;

/** One for each model, key or project, that of the most spend first. */
function linesOf({ data }: SummaryAnswer, by: Dimension, names: Names): readonly Line[] {
  const groups = Map.groupBy(
    data,
    (group) => (by === 'model' ? group.model : by === 'key_id' ? group.key_id : group.project_id) ?? '',
  );
  return [...groups.values()]
    .map((list): Line => {
      const [first] = list;
      return {
        name: first === undefined ? '' : nameOf(first, by, names),
        days: new Map(list.map((group) => [bucketKey(group), group])),
        cost: sumOfUsd(list.map(({ cost }) => cost)),
        tokens: list.reduce((sum, group) => sum + tokensOf(group), 0),
        requests: list.reduce((sum, { num_model_requests }) => sum + num_model_requests, 0),
        refused: list.reduce((sum, group) => sum + refusedOf(group), 0),
      };
    })
    .toSorted((a, b) => Number(b.cost) - Number(a.cost) || b.tokens - a.tokens || b.requests - a.requests);
}

export function overTime(summary: SummaryAnswer, { by, measure, names, range, buckets }: SumsShown): Html {
  const lines = linesOf(summary, by, names);
  if (lines.length === 0) {
    return empty(
      'No requests in this time',
      'Choose a longer range above, or send one: the overview has lines that do.',
    );
  }
  const shown = lines.length > seriesMax + 1 ? lines.slice(0, seriesMax) : lines;
  const rest = lines.slice(shown.length);
  const valueOf = (group: SummaryGroupAnswer | undefined): number =>
    group === undefined ? 0 : measure === 'cost' ? Number(group.cost) : tokensOf(group);
  const series = shown.map(({ name, days: own }) => {
    const groups = buckets.map(({ key }) => own.get(key));
    return {
      name,
      values: groups.map(valueOf),
      labels: groups.map((group) => (measure === 'cost' ? usd(group?.cost ?? '0') : counted(valueOf(group), 'token'))),
    };
  });
  const others = buckets.map(({ key }) => rest.reduce((sum, line) => sum + valueOf(line.days.get(key)), 0));
  const all =
    rest.length === 0
      ? series
      : [
          ...series,
          {
            name: `${rest.length} others`,
            values: others,
            labels: others.map((value) => (measure === 'cost' ? `about $${value}` : counted(value, 'token'))),
          },
        ];
  const scale = (value: number): string =>
    measure === 'cost' ? `$${Number(value.toPrecision(3))}` : shortCount(value);
  const title = `${measure === 'cost' ? 'Spend' : 'Tokens'} by ${range.unit} and ${dimensions.find(({ value }) => value === by)?.label ?? by}; the table below has the numbers`;
  return html`<section aria-labelledby="time-title">
    <h2 id="time-title">${measure === 'cost' ? 'Spend' : 'Tokens'} over time</h2>
    ${barChart({ title, bars: buckets.map(({ label }) => label), series: all, scale })}
    ${sumTable(lines, shown.length, by, summary)} ${bucketTable(summary, range, buckets)}
  </section>`;
}

function shortCount(value: number): string {
  if (value >= 1_000_000) return `${Number((value / 1_000_000).toPrecision(3))}M`;
  return value >= 1000 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(3)));
}

function sumTable(lines: readonly Line[], marked: number, by: Dimension, { totals: sums }: SummaryAnswer): Html {
  const label = dimensions.find(({ value }) => value === by)?.label ?? by;
  return table({
    caption: `Sums by ${label}`,
    columns: [
      { title: `${label.slice(0, 1).toUpperCase()}${label.slice(1)}` },
      { title: 'Requests', isNumber: true },
      { title: 'Refused', isNumber: true },
      { title: 'Tokens', isNumber: true },
      { title: 'Spend', isNumber: true },
    ],
    rows: lines.map(({ name, requests, refused, tokens, cost }, index) => [
      html`${mark(Math.min(index, marked))}${name}`,
      count(requests),
      count(refused),
      count(tokens),
      usd(cost),
    ]),
    foot: [
      'All',
      count(sums.num_model_requests),
      count(refusedOf(sums)),
      count(sums.input_tokens + sums.output_tokens),
      usd(sums.cost),
    ],
  });
}

/** The bars as numbers: a line for each day or hour that has any. */
function bucketTable({ data }: SummaryAnswer, { unit }: Range, buckets: readonly Bucket[]): Html {
  const byBucket = Map.groupBy(data, bucketKey);
  const rows = buckets.toReversed().flatMap(({ key, label }): MaybeHtml[][] => {
    const groups = byBucket.get(key);
    if (groups === undefined) return [];
    const add = (read: (group: SummaryGroupAnswer) => number): string =>
      count(groups.reduce((sum, group) => sum + read(group), 0));
    return [
      [
        label,
        add((group) => group.num_model_requests),
        add((group) => group.input_tokens),
        add((group) => group.output_tokens),
        usd(sumOfUsd(groups.map(({ cost }) => cost))),
      ],
    ];
  });
  const first = unit === 'day' ? 'Day (UTC)' : 'Hour from';
  return html`<details class="fold">
    <summary>The same by ${unit}</summary>
    ${table({ caption: `Sums by ${unit} (UTC)`, columns: [{ title: first }, { title: 'Requests', isNumber: true }, { title: 'Input tokens', isNumber: true }, { title: 'Output tokens', isNumber: true }, { title: 'Spend', isNumber: true }], rows })}
  </details>`;
}
