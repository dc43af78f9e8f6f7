import { parseId } from '#base/id.ts';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { RejectedRequestAnswer, UsageRequestAnswer } from '#edge/contract/requests.ts';
import type { SumsAnswer, UsageSummaryAnswer } from '#edge/contract/usage.ts';
import { assets, otherOrganization, page, readKeys, readPages } from '#edge/portal/frame/frame.ts';
import {
  empty,
  headerOf,
  html,
  type Html,
  type MaybeHtml,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { findForm, readRejected, type RejectedAsked, rejectedSection } from './rejected.ts';
import { requestsTable } from './requests-table.ts';
import {
  usageFilters,
  type Filters,
  filtersOf,
  isNarrowed,
  queryWith,
  requestsQuery,
  searchQuery,
  sumsQuery,
} from './usage-filters.ts';
import { measureOf } from './usage-measures.ts';
import { bucketKey, bucketsOf, type Range, rangeOf } from './usage-range.ts';
import { idsShown, isEachShown, type Names, overTime, type Sums, totals } from './usage-sums.ts';

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
  const asked = sumsQuery(range, filters);
  const { by } = filters;
  const summary = (query: Readonly<Record<string, string>>): Promise<UsageSummaryAnswer> =>
    get<UsageSummaryAnswer>(pathWith('/v1/usage/summary', { ...asked, ...query }));
  const measure = measureOf(filters.measure);
  const latency = measure.kind === 'latency' ? 'true' : '';
  const earlier = { from: new Date(2 * range.fromMs - range.toMs).toISOString(), to: asked['from'] ?? '' };
  const [lines, before] = await Promise.all([
    summary({ group_by: by }),
    measure.kind === 'sum' && 2 * range.fromMs > range.toMs ? summary({ ...earlier, group_by: range.unit }) : null,
  ]);
  if (isEachShown(lines)) {
    const series = await summary({ group_by: `${range.unit},${by}`, latency });
    return { lines, buckets: sumByBucket(series), series, before };
  }
  const shown = idsShown(lines, { by, measure: filters.measure });
  const chosen = shown.map((id) => `&${new URLSearchParams({ [by]: id }).toString()}`).join('');
  const { [by]: _own, ...others } = asked;
  const path = pathWith('/v1/usage/summary', { ...others, group_by: `${range.unit},${by}`, latency });
  const [buckets, series] = await Promise.all([
    summary({ group_by: range.unit }),
    shown.length === 0 ? { ...lines, data: [] } : get<UsageSummaryAnswer>(`${path}${chosen}`),
  ]);
  return { lines, buckets, series, before };
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
  const shown = await readPage(visit, parts);
  if (shown.isFollowed && headerOf(visit.context, 'x-poll') !== null)
    return page(visit, { title: 'Usage', body: requestLists(visit, shown, null) });
  const { filters, range, names } = shown;
  const [sums, models] = await Promise.all([readSums(visit, range, filters), modelsOf(visit, parts, filters)]);
  const query = queryWith(range, filters);
  const chartShown = {
    by: filters.by,
    measure: measureOf(filters.measure),
    names,
    range,
    buckets: bucketsOf(range, sums.buckets.data),
    address: (change: Readonly<Record<string, string>>) => pathWith('/portal/usage', { ...query, ...change }),
  };
  const body = html`<p class="lead">Days, hours and times are in UTC, as in the ledger.</p>
    ${otherOrganization(filters.organization, '/portal/usage')} ${usageFilters(range, filters, names, models)}
    <div id="results">
      ${visit.may('usage.read') ? null : html`<p class="quiet">Members see only the usage of their own keys.</p>`}
      ${totals(sums.lines)} ${overTime(sums, chartShown)} ${requestLists(visit, shown, sums)}
    </div>`;
  return page(visit, { title: 'Usage', actions: findForm(filters.organization), body, script: assets.chart });
}

/** The lists of the page, which is all that is read again while they are followed. */
interface Shown {
  readonly filters: Filters;
  readonly range: Range;
  readonly names: Names;
  readonly requests: ListAnswer<UsageRequestAnswer>;
  readonly rejected: ListAnswer<RejectedRequestAnswer>;
  readonly ofRejected: RejectedAsked;
  /** True if new requests appear by themselves; null where they cannot: in the past, and on later pages. */
  readonly isFollowed: boolean | null;
}

async function readPage(visit: Visit, parts: PortalParts): Promise<Shown> {
  const filters = filtersOf(visit);
  const range = rangeOf(visit, parts.clock.now());
  const cursor = queryOf(visit.context, 'cursor');
  const { outcome: _, ...search } = searchQuery(filters);
  const ofRejected = {
    api: { ...sumsQuery(range, filters), ...search },
    page: queryWith(range, filters),
    code: filters.code,
  };
  const listed = { ...requestsQuery(range, filters), limit: pageSize, cursor };
  const [requests, rejected, names] = await Promise.all([
    visit.get<ListAnswer<UsageRequestAnswer>>(pathWith('/v1/usage/requests', listed)),
    readRejected(visit, ofRejected),
    namesOf(visit, filters),
  ]);
  const isNow = cursor === '' && range.toMs > parts.clock.now();
  const isFollowed = isNow ? queryOf(visit.context, 'follow') === '1' : null;
  return { filters, range, names, requests, rejected, ofRejected, isFollowed };
}

/** @param sums null while the lists are followed: nothing else is read then */
function requestLists(visit: Visit, shown: Shown, sums: Sums | null): Html {
  const { filters, range, names, requests, rejected, ofRejected, isFollowed } = shown;
  const query = queryWith(range, filters);
  // Names the organization that this page shows, because the visitor may look at another one by the time of the
  // download.
  const exported = {
    ...query,
    organization_id: filters.organization === '' ? visit.organizationId : filters.organization,
  };
  const next =
    requests.next_cursor === null ? null : pathWith('/portal/usage', { ...query, cursor: requests.next_cursor });
  const followed = pathWith('/portal/usage', { ...query, follow: '1' });
  const polls = html`hx-get="${followed}" hx-select="#request-lists" hx-trigger="every 3s" hx-swap="outerHTML"
  hx-headers='{"X-Poll":"1"}'`;
  const onlyLists = Object.values(searchQuery(filters)).some((text) => text !== '');
  return html`<div id="request-lists" ${isFollowed === true ? polls : null}>
    <section aria-labelledby="requests-title">
      <div class="heading">
        <h2 id="requests-title">Requests</h2>
        <div class="actions">
          ${isFollowed === null ? null : followLink(isFollowed, isFollowed ? pathWith('/portal/usage', query) : followed)}
          <a class="button" href="${pathWith('/portal/usage/requests.csv', exported)}" download>Download CSV</a>
          <a class="button" href="${pathWith('/portal/usage/requests.ndjson', exported)}" download>Download NDJSON</a>
        </div>
      </div>
      ${isFollowed === true ? html`<p class="quiet">New requests appear every 3 seconds, when they end.</p>` : null}
      ${onlyLists ? html`<p class="quiet">Outcome, status, end user and error text apply only to the lists. The sums above include all requests.</p>` : null}
      ${requestList(requests, names, range, filters)} ${isFollowed === true ? null : older(next)}
    </section>
    ${rejectedSection(rejected, isFollowed === true ? null : (sums?.lines.totals ?? null), ofRejected, keyNames(names))}
  </div>`;
}

const followLink = (isFollowed: boolean, href: string): Html =>
  html`<a class="button" href="${href}#requests-title">${isFollowed ? 'Stop following' : 'Follow'}</a>`;

const exportTypes = { csv: 'text/csv', ndjson: 'application/x-ndjson' } as const;

/** Sends all requests that match the filters, as the API exports them. */
export async function usageExport(
  visit: Visit,
  parts: PortalParts,
  format: keyof typeof exportTypes,
): Promise<Response> {
  const range = rangeOf(visit, parts.clock.now());
  const asked = requestsQuery(range, filtersOf(visit));
  const { body } = await visit.open(pathWith('/v1/usage/requests', asked), { accept: exportTypes[format] });
  const days = `${asked['from']?.slice(0, 10)}-to-${new Date(range.toMs - 1).toISOString().slice(0, 10)}`;
  const type = format === 'csv' ? 'text/csv; charset=utf-8; header=present' : exportTypes.ndjson;
  visit.context.header('content-type', type);
  visit.context.header('content-disposition', `attachment; filename="usage-${days}.${format}"`);
  return visit.context.body(body ?? '', 200);
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
