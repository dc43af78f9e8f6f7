import { parseId } from '#base/id.ts';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { UsageRequestAnswer } from '#edge/contract/requests.ts';
import type { SumsAnswer, UsageSummaryAnswer } from '#edge/contract/usage.ts';
import { otherOrganization, page, readKeys, readPages } from '#edge/portal/frame/frame.ts';
import {
  type Choice,
  empty,
  html,
  type Html,
  type MaybeHtml,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  select,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { findForm, readRejected, rejectedSection } from './rejected.ts';
import { requestsTable } from './requests-table.ts';
import { bucketKey, bucketsOf, type Range, rangeOf, ranges } from './usage-range.ts';
import {
  type Dimension,
  dimensions,
  idsShown,
  isEachShown,
  type Names,
  overTime,
  type Sums,
  totals,
} from './usage-sums.ts';

/** Adds the usage of several groups, exact to the pico-dollar. */
function addSums(groups: readonly SumsAnswer[]): SumsAnswer {
  const sum = (read: (one: SumsAnswer) => number): number => groups.reduce((all, one) => all + read(one), 0);
  const refusals: Record<string, number> = {};
  for (const group of groups) {
    for (const [code, number] of Object.entries(group.refusals)) refusals[code] = (refusals[code] ?? 0) + number;
  }
  const cost = groups.reduce((all, one) => all + (parseDecimal(one.cost, PICO_DIGITS) ?? 0n), 0n);
  return {
    num_model_requests: sum((one) => one.num_model_requests),
    outcomes: {
      completed: sum(({ outcomes }) => outcomes.completed),
      aborted: sum(({ outcomes }) => outcomes.aborted),
      ended: sum(({ outcomes }) => outcomes.ended),
      failed: sum(({ outcomes }) => outcomes.failed),
    },
    refusals,
    input_tokens: sum((one) => one.input_tokens),
    input_cached_tokens: sum((one) => one.input_cached_tokens),
    output_tokens: sum((one) => one.output_tokens),
    output_reasoning_tokens: sum((one) => one.output_reasoning_tokens),
    cost: formatUsd(cost),
  };
}

const pageSize = 50;

const outcomes: readonly Choice[] = [
  { value: '', label: 'All outcomes' },
  { value: 'completed', label: 'Completed' },
  { value: 'aborted', label: 'Client left' },
  { value: 'ended', label: 'Ended by gateway' },
  { value: 'failed', label: 'Failed' },
];

interface Filters {
  readonly by: Dimension;
  readonly measure: 'cost' | 'tokens';
  readonly model: string;
  readonly key: string;
  readonly project: string;
  readonly outcome: string;
  /** Error code of the rejected requests that are shown; empty for all. */
  readonly code: string;
  /** The organization that a platform administrator looks at; empty for the visitor's own. */
  readonly organization: string;
}

function filtersOf({ context }: Visit): Filters {
  const asked = (name: string): string => queryOf(context, name).trim();
  return {
    by: dimensions.find(({ value }) => value === asked('by'))?.value ?? 'model',
    measure: asked('measure') === 'tokens' ? 'tokens' : 'cost',
    model: asked('model'),
    key: asked('key'),
    project: asked('project'),
    outcome: asked('outcome'),
    code: asked('code'),
    organization: asked('organization_id'),
  };
}

/** Returns the filters as the page's query parameters. */
function queryWith({ name, from, until }: Range, filters: Filters): Readonly<Record<string, string>> {
  const { organization, ...own } = filters;
  return { range: name, from, until, ...own, organization_id: organization };
}

/** Returns the filters as query parameters of the API. */
function requestsQuery({ fromMs, toMs }: Range, filters: Filters): Readonly<Record<string, string>> {
  const { model, key, project, outcome, organization } = filters;
  const [from, to] = [new Date(fromMs).toISOString(), new Date(toMs).toISOString()];
  return { from, to, model, key_id: key, project_id: project, outcome, organization_id: organization };
}

async function namesOf(visit: Visit, { organization }: Filters): Promise<Names> {
  const { may } = visit;
  const [keys, projects] = await Promise.all([
    may('keys') ? readKeys(visit, { organization_id: organization }) : null,
    may('projects') ? readPages<ProjectAnswer>(visit, '/v1/projects', { organization_id: organization }) : null,
  ]);
  return {
    keys: new Map(keys?.map(({ id, name }) => [id, name])),
    projects: new Map(projects?.map(({ id, name }) => [id, name])),
  };
}

/**
 * Lists the models of the organization that the page shows. The API rejects visitors who may not see that organization.
 */
function modelsOf(visit: Visit, { models }: PortalParts, { organization }: Filters): Promise<readonly ModelAnswer[]> {
  const asked = parseId('org', organization === '' ? visit.organizationId : organization);
  return models(asked ?? visit.signedIn.principal.organizationId);
}

/**
 * Reads the sums for the filters, for all outcomes. Each sum is one snapshot, and together they have only the rows
 * shown.
 */
async function readSums({ get }: Visit, range: Range, filters: Filters): Promise<Sums> {
  const { outcome: _, ...asked } = requestsQuery(range, filters);
  const { by } = filters;
  const summary = (query: Readonly<Record<string, string>>): Promise<UsageSummaryAnswer> =>
    get<UsageSummaryAnswer>(pathWith('/v1/usage/summary', { ...asked, ...query }));
  const lines = await summary({ group_by: by });
  if (isEachShown(lines)) {
    const series = await summary({ group_by: `${range.unit},${by}` });
    return { lines, buckets: sumByBucket(series), series };
  }
  const shown = idsShown(lines, { by, measure: filters.measure });
  const chosen = shown.map((id) => `&${new URLSearchParams({ [by]: id }).toString()}`).join('');
  const { [by]: _own, ...others } = asked;
  const path = pathWith('/v1/usage/summary', { ...others, group_by: `${range.unit},${by}` });
  const [buckets, series] = await Promise.all([
    summary({ group_by: range.unit }),
    shown.length === 0 ? { ...lines, data: [] } : get<UsageSummaryAnswer>(`${path}${chosen}`),
  ]);
  return { lines, buckets, series };
}

/** Sums by day or hour over all lines of a series. */
function sumByBucket(series: UsageSummaryAnswer): UsageSummaryAnswer {
  const groups = Map.groupBy(series.data, bucketKey);
  const data = [...groups.values()].flatMap(([first, ...others]) => {
    if (first === undefined) return [];
    const { day, hour } = first;
    return [{ ...addSums([first, ...others]), ...(day !== undefined && { day }), ...(hour !== undefined && { hour }) }];
  });
  return { ...series, data };
}

export async function usagePage(visit: Visit, parts: PortalParts): Promise<Response> {
  const { get, context } = visit;
  const filters = filtersOf(visit);
  const range = rangeOf(visit, parts.clock.now());
  const asked = requestsQuery(range, filters);
  const listed = { ...asked, limit: pageSize, cursor: queryOf(context, 'cursor') };
  const { outcome: _, ...apiQuery } = asked;
  const query = queryWith(range, filters);
  const ofRejected = { api: apiQuery, page: query, code: filters.code };
  const [sums, requests, rejected, names, models] = await Promise.all([
    readSums(visit, range, filters),
    get<ListAnswer<UsageRequestAnswer>>(pathWith('/v1/usage/requests', listed)),
    readRejected(visit, ofRejected),
    namesOf(visit, filters),
    modelsOf(visit, parts, filters),
  ]);
  // Names the organization that this page shows, because the visitor may look at another one by the time of the
  // download.
  const csv = pathWith('/portal/usage/requests.csv', {
    ...query,
    organization_id: filters.organization === '' ? visit.organizationId : filters.organization,
  });
  const next =
    requests.next_cursor === null ? null : pathWith('/portal/usage', { ...query, cursor: requests.next_cursor });
  const { by, measure } = filters;
  const body = html`<p class="lead">Days, hours and times are in UTC, as in the ledger.</p>
    ${otherOrganization(filters.organization, '/portal/usage')} ${filterForm(range, filters, names, models)}
    <div id="results">
      ${visit.may('usage.read') ? null : html`<p class="quiet">Members see only the usage of their own keys.</p>`}
      ${totals(sums.lines)}
      ${overTime(sums, { by, measure, names, range, buckets: bucketsOf(range, sums.buckets.data) })}
      <section aria-labelledby="requests-title">
        <div class="heading">
          <h2 id="requests-title">Requests</h2>
          <div class="actions">
            <a class="button" href="${csv}" download>Download CSV</a>
          </div>
        </div>
        ${filters.outcome === '' ? null : html`<p class="quiet">The outcome filter applies only to this list. The sums above include all outcomes.</p>`}
        ${requestList(requests, names, range, filters)} ${older(next)}
      </section>
      ${rejectedSection(rejected, sums.lines.totals, ofRejected, keyNames(names))}
    </div>`;
  return page(visit, { title: 'Usage', actions: findForm(filters.organization), body });
}

/** Sends all requests that match the filters, as the API exports them. */
export async function usageCsv(visit: Visit, parts: PortalParts): Promise<Response> {
  const range = rangeOf(visit, parts.clock.now());
  const asked = requestsQuery(range, filtersOf(visit));
  const { body } = await visit.open(pathWith('/v1/usage/requests', asked), { accept: 'text/csv' });
  const name = `usage-${asked['from']?.slice(0, 10)}-to-${new Date(range.toMs - 1).toISOString().slice(0, 10)}.csv`;
  visit.context.header('content-type', 'text/csv; charset=utf-8; header=present');
  visit.context.header('content-disposition', `attachment; filename="${name}"`);
  return visit.context.body(body ?? '', 200);
}

const isNarrowed = ({ model, key, project, outcome }: Filters): boolean =>
  [model, key, project, outcome].some((text) => text !== '');

const all = (what: string): Choice => ({ value: '', label: `All ${what}` });

/** Adds the requested value to the choices if it is missing, such as a deleted key. */
function choices(what: string, known: readonly Choice[], chosen: string): readonly Choice[] {
  const isKnown = chosen === '' || known.some(({ value }) => value === chosen);
  return [all(what), ...known, ...(isKnown ? [] : [{ value: chosen, label: chosen }])];
}

function dateField(name: string, label: string, value: string): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input type="date" id="${name}" name="${name}" value="${value}" data-instead="range" />
  </div>`;
}

function rangeField(shown: Range['name']): Html {
  return html`<div class="field">
    <label for="range">Range</label>
    <select id="range" name="range" data-instead="from until" data-otherwise="dates">
      ${ranges.map(({ value, label }) => html`<option value="${value}" ${value === shown ? html`selected` : null}>${label}</option>`)}
    </select>
    <input type="hidden" name="shown" value="${shown}" />
  </div>`;
}

function filterForm(range: Range, filters: Filters, { keys, projects }: Names, models: readonly ModelAnswer[]): Html {
  const named = (map: ReadonlyMap<string, string>): Choice[] => [...map].map(([value, label]) => ({ value, label }));
  const modelChoices = models.map(({ id }) => ({ value: id, label: id }));
  const measures = [
    { value: 'cost', label: 'spend' },
    { value: 'tokens', label: 'tokens' },
  ];
  return html`<form
    class="filters"
    method="get"
    action="/portal/usage"
    hx-get="/portal/usage"
    hx-target="#results"
    hx-select="#results"
    hx-swap="outerHTML"
    hx-sync="this:replace"
    hx-trigger="change"
    hx-push-url="true"
  >
    ${filters.organization === '' ? null : html`<input type="hidden" name="organization_id" value="${filters.organization}" />`}
    ${rangeField(range.name)} ${dateField('from', 'From (UTC)', range.from)}
    ${dateField('until', 'Until (UTC)', range.until)} ${select('by', 'Group by', dimensions, filters.by)}
    ${select('measure', 'Measure', measures, filters.measure)}
    ${select('model', 'Model', choices('models', modelChoices, filters.model), filters.model)}
    ${select('key', 'Key', choices('keys', named(keys), filters.key), filters.key)}
    ${select('project', 'Project', choices('projects', named(projects), filters.project), filters.project)}
    ${select('outcome', 'Outcome', outcomes, filters.outcome)}
    <p class="buttons"><button>Show</button></p>
  </form>`;
}

const keyNames =
  ({ keys }: Names) =>
  (id: string): MaybeHtml =>
    keys.get(id) ?? html`<span class="quiet">${id}</span>`;

function requestList(
  { data }: ListAnswer<UsageRequestAnswer>,
  names: Names,
  range: Range,
  filters: Filters,
): MaybeHtml {
  const { organization } = filters;
  if (data.length > 0)
    return requestsTable(data, keyNames(names), {
      organization,
      isOfDays: true,
    });
  return isNarrowed(filters)
    ? empty(
        'No matching requests',
        html`<a
            href="${pathWith('/portal/usage', { range: range.name, from: range.from, until: range.until, organization_id: organization })}"
            >Show all requests in this range</a
          >.`,
      )
    : empty(
        'No requests in this range',
        'Choose a longer range. Admitted requests appear here with their tokens, cost and timing.',
      );
}
