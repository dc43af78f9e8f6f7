import type {
  KeyAnswer,
  ListAnswer,
  ModelAnswer,
  ProjectPageAnswer,
  RequestAnswer,
  SummaryAnswer,
  SummaryGroupAnswer,
  SumsAnswer,
} from './answers.ts';
import { barChart, mark } from './chart.ts';
import { count, counted, sumOfUsd, usd } from './format.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { page } from './layout.ts';
import type { PortalParts } from './parts.ts';
import { requestsTable } from './requests-table.ts';
import { type Choice, empty, figures, older, select, table } from './ui.ts';
import { pathWith, queryOf, type Visit } from './visit.ts';

const dayMs = 86_400_000;
const pageSize = 50;
/** Beyond these the rest is one series. */
const seriesMax = 5;

const ranges = [
  { value: '7', label: 'Last 7 days' },
  { value: '30', label: 'Last 30 days' },
  { value: '90', label: 'Last 90 days' },
  { value: 'month', label: 'This month' },
] as const;

const dimensions = [
  { value: 'model', label: 'model' },
  { value: 'key_id', label: 'key' },
  { value: 'project_id', label: 'project' },
] as const;
type Dimension = (typeof dimensions)[number]['value'];

const outcomes: readonly Choice[] = [
  { value: '', label: 'All outcomes' },
  { value: 'completed', label: 'Completed' },
  { value: 'aborted', label: 'Client left' },
  { value: 'ended', label: 'Ended by the gateway' },
  { value: 'failed', label: 'Failed' },
];

interface Filters {
  readonly range: string;
  readonly by: Dimension;
  readonly measure: 'cost' | 'tokens';
  readonly model: string;
  readonly key: string;
  readonly project: string;
  readonly outcome: string;
}

interface Names {
  readonly keys: ReadonlyMap<string, string>;
  readonly projects: ReadonlyMap<string, string>;
}

function filtersOf({ context }: Visit): Filters {
  const asked = (name: string): string => queryOf(context, name).trim();
  return {
    range: ranges.find(({ value }) => value === asked('range'))?.value ?? '30',
    by: dimensions.find(({ value }) => value === asked('by'))?.value ?? 'model',
    measure: asked('measure') === 'tokens' ? 'tokens' : 'cost',
    model: asked('model'),
    key: asked('key'),
    project: asked('project'),
    outcome: asked('outcome'),
  };
}

/** Midnight UTC of the first day. */
function fromOf({ range }: Filters, nowMs: number): number {
  const now = new Date(nowMs);
  const today = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate());
  if (range === 'month') return Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  return today - (Number(range) - 1) * dayMs;
}

export async function usagePage(visit: Visit, parts: PortalParts): Promise<Response> {
  const { get, may, context } = visit;
  const filters = filtersOf(visit);
  const nowMs = parts.clock.now();
  const fromMs = fromOf(filters, nowMs);
  const from = new Date(fromMs).toISOString();
  const { model, key, project, outcome, by } = filters;
  const query = {
    from,
    model,
    key_id: key,
    project_id: project,
    outcome,
    limit: pageSize,
    cursor: queryOf(context, 'cursor'),
  };
  const [summary, requests, keys, projects, models] = await Promise.all([
    get<SummaryAnswer>(pathWith('/v1/usage/summary', { from, group_by: `day,${by}` })),
    get<ListAnswer<RequestAnswer>>(pathWith('/v1/usage/requests', query)),
    may('keys') ? get<ListAnswer<KeyAnswer>>('/v1/keys?limit=500') : null,
    may('projects') ? get<ProjectPageAnswer>('/v1/projects?limit=100') : null,
    parts.models(visit.signedIn.principal.organizationId),
  ]);
  const names: Names = {
    keys: new Map(keys?.data.map(({ id, name }) => [id, name])),
    projects: new Map(projects?.data.map(({ id, name }) => [id, name])),
  };
  const { range, measure } = filters;
  const next =
    requests.next_cursor === null
      ? null
      : pathWith('/portal/usage', { range, by, measure, model, key, project, outcome, cursor: requests.next_cursor });
  const days = daysOf(fromMs, nowMs);
  const body = html`${filterForm(filters, names, models)}
    <div id="results">
      ${totals(summary)} ${overTime(summary, filters, names, days)}
      <section aria-labelledby="requests-title">
        <h2 id="requests-title">Requests</h2>
        ${isNarrowed(filters) ? html`<p class="quiet">The filters by model, key, project and outcome are for this list; the sums above are of everything in the range.</p>` : null}
        ${requestList(requests, names, filters)} ${older(next)}
      </section>
    </div>`;
  return page(visit, { title: 'Usage', body });
}

const isNarrowed = ({ model, key, project, outcome }: Filters): boolean =>
  [model, key, project, outcome].some((text) => text !== '');

function daysOf(fromMs: number, nowMs: number): readonly string[] {
  const days = Math.floor((nowMs - fromMs) / dayMs) + 1;
  return Array.from({ length: days }, (_, index) => new Date(fromMs + index * dayMs).toISOString().slice(0, 10));
}

const all = (what: string): Choice => ({ value: '', label: `All ${what}` });

/** What was asked for stays among the choices, also where it is no more: a key that is not in the list. */
function choices(what: string, known: readonly Choice[], chosen: string): readonly Choice[] {
  const isKnown = chosen === '' || known.some(({ value }) => value === chosen);
  return [all(what), ...known, ...(isKnown ? [] : [{ value: chosen, label: chosen }])];
}

function filterForm(filters: Filters, { keys, projects }: Names, models: readonly ModelAnswer[]): Html {
  const named = (map: ReadonlyMap<string, string>): Choice[] => [...map].map(([value, label]) => ({ value, label }));
  const modelChoices = models.map(({ id }) => ({ value: id, label: id }));
  return html`<form
    class="filters"
    method="get"
    action="/portal/usage"
    hx-get="/portal/usage"
    hx-target="#results"
    hx-select="#results"
    hx-swap="outerHTML"
    hx-trigger="change"
    hx-push-url="true"
  >
    ${select('range', 'Range', ranges, filters.range)} ${select('by', 'By', dimensions, filters.by)}
    ${select(
      'measure',
      'Show',
      [
        { value: 'cost', label: 'spend' },
        { value: 'tokens', label: 'tokens' },
      ],
      filters.measure,
    )}
    ${select('model', 'Model', choices('models', modelChoices, filters.model), filters.model)}
    ${select('key', 'Key', choices('keys', named(keys), filters.key), filters.key)}
    ${select('project', 'Project', choices('projects', named(projects), filters.project), filters.project)}
    ${select('outcome', 'Outcome', outcomes, filters.outcome)}
    <p class="buttons"><button>Show</button></p>
  </form>`;
}

function totals({ totals: sums }: SummaryAnswer): Html {
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
        days: new Map(list.map((group) => [group.day ?? '', group])),
        cost: sumOfUsd(list.map(({ cost }) => cost)),
        tokens: list.reduce((sum, group) => sum + tokensOf(group), 0),
        requests: list.reduce((sum, { num_model_requests }) => sum + num_model_requests, 0),
        refused: list.reduce((sum, group) => sum + refusedOf(group), 0),
      };
    })
    .toSorted((a, b) => Number(b.cost) - Number(a.cost) || b.tokens - a.tokens || b.requests - a.requests);
}

function overTime(summary: SummaryAnswer, { by, measure }: Filters, names: Names, days: readonly string[]): Html {
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
    const groups = days.map((day) => own.get(day));
    return {
      name,
      values: groups.map(valueOf),
      labels: groups.map((group) => (measure === 'cost' ? usd(group?.cost ?? '0') : counted(valueOf(group), 'token'))),
    };
  });
  const others = days.map((day) => rest.reduce((sum, line) => sum + valueOf(line.days.get(day)), 0));
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
  const title = `${measure === 'cost' ? 'Spend' : 'Tokens'} by day and ${dimensions.find(({ value }) => value === by)?.label ?? by}; the table below has the numbers`;
  return html`<section aria-labelledby="time-title">
    <h2 id="time-title">${measure === 'cost' ? 'Spend' : 'Tokens'} over time</h2>
    ${barChart({ title, bars: days, series: all, scale })} ${sumTable(lines, shown.length, by, summary)}
    ${dayTable(summary, days)}
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

/** The bars as numbers: a line for each day that has any. */
function dayTable({ data }: SummaryAnswer, days: readonly string[]): Html {
  const byDay = Map.groupBy(data, ({ day }) => day ?? '');
  const rows = days.toReversed().flatMap((day): MaybeHtml[][] => {
    const groups = byDay.get(day);
    if (groups === undefined) return [];
    const add = (read: (group: SummaryGroupAnswer) => number): string =>
      count(groups.reduce((sum, group) => sum + read(group), 0));
    return [
      [
        day,
        add((group) => group.num_model_requests),
        add((group) => group.input_tokens),
        add((group) => group.output_tokens),
        usd(sumOfUsd(groups.map(({ cost }) => cost))),
      ],
    ];
  });
  return html`<details class="fold">
    <summary>The same by day</summary>
    ${table({ caption: 'Sums by day (UTC)', columns: [{ title: 'Day (UTC)' }, { title: 'Requests', isNumber: true }, { title: 'Input tokens', isNumber: true }, { title: 'Output tokens', isNumber: true }, { title: 'Spend', isNumber: true }], rows })}
  </details>`;
}

function requestList({ data }: ListAnswer<RequestAnswer>, { keys }: Names, filters: Filters): Html {
  if (data.length > 0) return requestsTable(data, (id) => keys.get(id) ?? html`<span class="quiet">${id}</span>`);
  return isNarrowed(filters)
    ? empty('No request matches', html`<a href="/portal/usage?range=${filters.range}">Show all of the range</a>.`)
    : empty(
        'No requests in this time',
        'Each admitted request stands here with its tokens, its cost and why it took as long as it did.',
      );
}
