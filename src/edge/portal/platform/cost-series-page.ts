import type { CostGroupAnswer, CostSeriesAnswer } from '#edge/contract/costs.ts';
import { assets, page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  chart,
  empty,
  field,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  RefusedError,
  select,
  type Series,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { amountsText } from './amount-text.ts';
import { askedWindow, windowForm, windowQuery, windowText } from './cost-window.ts';
import { costTabs } from './costs-page.ts';
import { hoursText, momentIn } from './widgets.ts';

/** Costs over time and by group: a chart, and the numbers in tables. */

const path = '/portal/costs/series';

const stepChoices = [
  { value: '1h', label: 'Hours' },
  { value: '1d', label: 'Days' },
  { value: '1mo', label: 'Months' },
];

const groupChoices = [
  { value: 'organization', label: 'Organization' },
  { value: 'cluster', label: 'Cluster' },
  { value: 'node', label: 'Node' },
  { value: 'hardware_profile', label: 'Hardware profile' },
  { value: 'stack', label: 'Stack' },
  { value: 'label', label: 'Label' },
];

/** Name of the usage that a grouping leaves over. */
const restNames: Readonly<Record<string, string>> = { stack: 'no stack', label: 'not labeled' };

interface Chosen {
  readonly step: string;
  readonly group: string;
  readonly label: string;
}

function chosenIn({ context }: Visit): Chosen {
  const of = (name: string, choices: readonly { value: string }[], otherwise: string): string => {
    const text = queryOf(context, name);
    return choices.some(({ value }) => value === text) ? text : otherwise;
  };
  const label = queryOf(context, 'label').trim();
  return { step: of('step', stepChoices, '1d'), group: of('group', groupChoices, 'cluster'), label };
}

async function readSeries(
  { get }: Visit,
  query: Readonly<Record<string, string>>,
): Promise<CostSeriesAnswer | Refusal> {
  try {
    return await get<CostSeriesAnswer>(pathWith('/v1/billing/costs/series', query));
  } catch (error) {
    if (error instanceof RefusedError && error.refusal.status === 400) return error.refusal;
    throw error;
  }
}

export async function costSeriesPage(visit: Visit, nowMs: number): Promise<Response> {
  const [asked, chosen] = [askedWindow(visit, nowMs), chosenIn(visit)];
  const isUnnamed = chosen.group === 'label' && chosen.label === '';
  const group = chosen.group === 'label' ? `label:${chosen.label}` : chosen.group;
  const query = { ...windowQuery(asked), step: chosen.step, group_by: group };
  const found = isUnnamed ? null : await readSeries(visit, query);
  const refusal = found !== null && 'problems' in found ? found : null;
  const more = html`${select('step', 'Step', stepChoices, chosen.step)}
  ${select('group', 'Group by', groupChoices, chosen.group)}
  ${field({ name: 'label', label: 'Label key', value: chosen.label, refusal, placeholder: 'team', maxLength: 317 })}`;
  const body = html`${costTabs(visit, 'series')} ${windowForm(path, asked, refusal, more)}
    <div id="results">${results(found, chosen)}</div>`;
  return page(visit, {
    title: 'Costs over time',
    body,
    status: refusal === null ? 200 : statusOf(refusal),
    script: assets.chart,
  });
}

function results(found: CostSeriesAnswer | Refusal | null, { group }: Chosen): MaybeHtml {
  if (found === null) return empty('No label chosen', 'Write the key of a label, such as team, into the form above.');
  if ('problems' in found) return refused(found);
  const nothing =
    'Hours are metered while a node is allocated or a model replica uses GPUs. Choose another period above.';
  if (found.groups.length === 0) return empty('No hours in this period', nothing);
  const nameOf = ({ name }: CostGroupAnswer): string => name ?? restNames[group] ?? 'other';
  return html`<p class="quiet">
      ${windowText(found.window, html`, metered until ${momentIn(found.window.as_of, found.window.tz)}`)} All amounts
      add up to the <a href="/portal/costs">report</a>.
    </p>
    ${found.grand_total.map(({ currency }) => costChart(found, currency, nameOf))} ${groupTable(found, nameOf)}
    ${stepTable(found)}`;
}

const groupsInChart = 5;

const amountIn = (amounts: CostGroupAnswer['amounts'], currency: string): string =>
  amounts.find((one) => one.currency === currency)?.amount ?? '0';

/** Draws the groups that cost most; the others are one series. */
function costChart(
  { groups, steps, window }: CostSeriesAnswer,
  currency: string,
  nameOf: (one: CostGroupAnswer) => string,
): Html {
  const costOf = ({ amounts }: CostGroupAnswer): number => Number(amountIn(amounts, currency));
  const ranked = groups.filter((one) => costOf(one) > 0).toSorted((a, b) => costOf(b) - costOf(a));
  const [shown, others] = [ranked.slice(0, groupsInChart), ranked.slice(groupsInChart)];
  const seriesOf = (name: string, own: readonly CostGroupAnswer[]): Series => {
    const chosen = new Set(own.map(({ value }) => value));
    const values = steps.map(({ groups: of }) =>
      of.filter(({ value }) => chosen.has(value)).reduce((sum, one) => sum + costOf(one), 0),
    );
    const labels = values.map((value) => `${currency} ${value.toLocaleString('en-US', { maximumFractionDigits: 2 })}`);
    return { name, values, labels };
  };
  const series = [
    ...shown.map((one) => seriesOf(nameOf(one), [one])),
    ...(others.length === 0 ? [] : [seriesOf(`${others.length} others`, others)]),
  ];
  return chart({
    title: `Costs in ${currency} over time`,
    kind: 'bars',
    unit: currency === 'USD' ? 'usd' : 'count',
    points: steps.map(({ from }) => stepText(from, window.tz)),
    series,
  });
}

/** Formats the start of a step: "2026-11-23", or "2026-11-23 14:00" unless the day starts with it. */
function stepText(iso: string, tz: string): string {
  const text = new Date(iso).toLocaleString('sv-SE', { timeZone: tz, dateStyle: 'short', timeStyle: 'short' });
  return text.endsWith(' 00:00') ? text.slice(0, 'YYYY-MM-DD'.length) : text;
}

const costColumns = [
  { title: 'Node-hours', isNumber: true },
  { title: 'GPU-hours', isNumber: true },
  { title: 'Cost', isNumber: true },
] as const;

const costCells = (one: Omit<CostGroupAnswer, 'value' | 'name'>): string[] => [
  hoursText(one.node_hours),
  hoursText(one.gpu_hours),
  amountsText(one.amounts),
];

function groupTable(
  { groups, totals, grand_total: amounts }: CostSeriesAnswer,
  nameOf: (one: CostGroupAnswer) => string,
): Html {
  return table({
    caption: 'Costs by group',
    columns: [{ title: 'Group' }, ...costColumns],
    rows: [
      ...groups.map((one) => [nameOf(one), ...costCells(one)]),
      [html`<strong>Total</strong>`, ...costCells({ ...totals, amounts })],
    ],
  });
}

function stepTable({ steps, window }: CostSeriesAnswer): Html {
  return table({
    caption: 'Costs by step',
    columns: [{ title: `Start (${window.tz})` }, ...costColumns],
    rows: steps.map((one) => [stepText(one.from, window.tz), ...costCells(one)]),
  });
}
