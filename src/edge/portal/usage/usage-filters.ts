import type { ModelAnswer } from '#edge/contract/models.ts';
import { type Choice, filterForm, html, type Html, queryOf, select, type Visit } from '#edge/portal/ui/ui.ts';
import { measureOf, measures } from './usage-measures.ts';
import { type Range, ranges } from './usage-range.ts';
import { type Dimension, dimensions, type Names } from './usage-sums.ts';

/** The filters of the usage page: its form, its address and the queries of the API. */

const outcomes: readonly Choice[] = [
  { value: '', label: 'All outcomes' },
  { value: 'completed', label: 'Completed' },
  { value: 'aborted', label: 'Client left' },
  { value: 'ended', label: 'Ended by gateway' },
  { value: 'failed', label: 'Failed' },
];

export interface Filters {
  readonly by: Dimension;
  readonly measure: string;
  readonly model: string;
  readonly key: string;
  readonly project: string;
  readonly outcome: string;
  /** HTTP status; empty for all. */
  readonly status: string;
  /** End user as requests name them; empty for all. */
  readonly user: string;
  /** Text in the error; empty for all. */
  readonly error: string;
  /** Error code of the rejected requests that are shown; empty for all. */
  readonly code: string;
  /** The organization that a platform administrator looks at; empty for the visitor's own. */
  readonly organization: string;
}

export function filtersOf({ context }: Visit): Filters {
  const asked = (name: string): string => queryOf(context, name).trim();
  return {
    by: dimensions.find(({ value }) => value === asked('by'))?.value ?? 'model',
    measure: measureOf(asked('measure')).value,
    model: asked('model'),
    key: asked('key'),
    project: asked('project'),
    outcome: asked('outcome'),
    status: /^[1-5]\d\d$/.test(asked('status')) ? asked('status') : '',
    user: asked('user').slice(0, 256),
    error: asked('error').slice(0, 200),
    code: asked('code'),
    organization: asked('organization_id'),
  };
}

/** Returns the filters as the page's query parameters. */
export function queryWith({ name, from, until }: Range, filters: Filters): Readonly<Record<string, string>> {
  const { organization, ...own } = filters;
  return { range: name, from, until, ...own, organization_id: organization };
}

/** Returns the filters that sums know as query parameters of the API. */
export function sumsQuery({ fromMs, toMs }: Range, filters: Filters): Readonly<Record<string, string>> {
  const { model, key, project, organization } = filters;
  const [from, to] = [new Date(fromMs).toISOString(), new Date(toMs).toISOString()];
  return { from, to, model, key_id: key, project_id: project, organization_id: organization };
}

/** Returns the filters that only lists of requests know. */
export const searchQuery = ({ status, user, error, outcome }: Filters) => ({ status, end_user: user, error, outcome });

/** Returns the filters of requests as query parameters of the API. */
export function requestsQuery(range: Range, filters: Filters): Readonly<Record<string, string>> {
  const { outcome, ...search } = searchQuery(filters);
  return { ...sumsQuery(range, filters), ...search, outcome };
}

export const isNarrowed = ({ model, key, project, outcome, status, user, error }: Filters): boolean =>
  [model, key, project, outcome, status, user, error].some((text) => text !== '');

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

function searchField(name: string, label: string, value: string, more: Html): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input type="search" id="${name}" name="${name}" value="${value}" autocomplete="off" ${more} />
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

export function usageFilters(
  range: Range,
  filters: Filters,
  { keys, projects }: Names,
  models: readonly ModelAnswer[],
): Html {
  const named = (map: ReadonlyMap<string, string>): Choice[] => [...map].map(([value, label]) => ({ value, label }));
  const modelChoices = models.map(({ id }) => ({ value: id, label: id }));
  const fields = html`${filters.organization === '' ? null : html`<input type="hidden" name="organization_id" value="${filters.organization}" />`}
  ${rangeField(range.name)} ${dateField('from', 'From (UTC)', range.from)}
  ${dateField('until', 'Until (UTC)', range.until)} ${select('by', 'Group by', dimensions, filters.by)}
  ${select('measure', 'Measure', measures, filters.measure)}
  ${select('model', 'Model', choices('models', modelChoices, filters.model), filters.model)}
  ${select('key', 'Key', choices('keys', named(keys), filters.key), filters.key)}
  ${select('project', 'Project', choices('projects', named(projects), filters.project), filters.project)}
  ${select('outcome', 'Outcome', outcomes, filters.outcome)}
  ${searchField('status', 'HTTP status', filters.status, html`inputmode="numeric" pattern="[1-5][0-9][0-9]" maxlength="3"`)}
  ${searchField('user', 'End user', filters.user, html`maxlength="256"`)}
  ${searchField('error', 'Error text', filters.error, html`maxlength="200"`)}`;
  return filterForm('/portal/usage', fields);
}
