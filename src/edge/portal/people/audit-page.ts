import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import { actorNames, page, readOnward, statusOf, strangerNames } from '#edge/portal/frame/frame.ts';
import {
  type Choice,
  empty,
  html,
  type Html,
  type MaybeHtml,
  notice,
  older,
  pathWith,
  queryOf,
  RefusedError,
  select,
  table,
  timeInUtc,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { auditActions, sentenceOf } from './audit-words.ts';

const pageSize = 50;

interface Filters {
  /** `all`, for platform administrators; otherwise empty: the organization that pages show. */
  readonly organizations: 'all' | '';
  readonly action: string;
  readonly actor_id: string;
  readonly target_id: string;
  /** UTC days, as typed; the last day is included. */
  readonly from: string;
  readonly until: string;
}

function filtersOf({ context, viewed, may }: Visit): Filters {
  const isOfAll = viewed === null && may('organizations') && queryOf(context, 'organizations') === 'all';
  const asked = (name: string): string => queryOf(context, name).trim();
  return {
    organizations: isOfAll ? 'all' : '',
    action: asked('action'),
    actor_id: asked('actor_id'),
    target_id: asked('target_id'),
    from: asked('from'),
    until: asked('until'),
  };
}

export async function auditPage(visit: Visit): Promise<Response> {
  const filters = filtersOf(visit);
  const { organizations, until, ...narrowed } = filters;
  const all = organizations === 'all' ? 'true' : null;
  const after = queryOf(visit.context, 'after');
  const path = pathWith('/v1/audit', {
    ...narrowed,
    to: dayAfter(until),
    all_organizations: all,
    limit: pageSize,
    after,
  });
  const [people, owners, list] = await Promise.all([
    actorNames(visit, visit.organizationId),
    all === null ? null : organizationNames(visit),
    visit.send<ListAnswer<AuditEntryAnswer>>('GET', path),
  ]);
  // Shows invalid filters as a notice above the filters. A visitor who may not read the log gets an error page.
  if (!list.ok && list.refusal.status === 403) throw new RefusedError(list.refusal);
  const strangers = list.ok ? await strangerNames(visit, list.body.data, people) : [];
  const named = new Map([...people, ...strangers]);
  const body = html`<p class="lead">All changes, newest first, without secrets. Days and times are in UTC.</p>
    ${form(visit, filters, named)}
    ${list.ok ? entries(list.body, filters, { people: named, owners }) : notice('bad', list.refusal.message)}`;
  return page(visit, { title: 'Audit log', body, status: list.ok ? 200 : statusOf(list.refusal) });
}

const dayMs = 86_400_000;

/** Returns the midnight that ends a day, for the API's `to`. Other texts stay as they are, and the API rejects them. */
function dayAfter(day: string): string {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T00:00:00Z`) : Number.NaN;
  return Number.isNaN(ms) ? day : new Date(ms + dayMs).toISOString();
}

function text(name: keyof Filters, label: string, value: string, type: 'text' | 'date' = 'text'): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input type="${type}" id="${name}" name="${name}" value="${value}" maxlength="200" autocomplete="off" />
  </div>`;
}

/** Adds the requested value to the choices if it is not among them. */
function withChosen(choices: readonly Choice[], chosen: string): readonly Choice[] {
  const isThere = chosen === '' || choices.some(({ value }) => value === chosen);
  return isThere ? choices : [...choices, { value: chosen, label: chosen }];
}

/** Names by id. */
interface Names {
  readonly people: ReadonlyMap<string, string>;
  /** Names of all organizations; null if the list shows one organization. */
  readonly owners: ReadonlyMap<string, string> | null;
}

async function organizationNames(visit: Visit): Promise<ReadonlyMap<string, string>> {
  return new Map((await readOnward<OrganizationAnswer>(visit, '/v1/organizations')).map(({ id, name }) => [id, name]));
}

const extents: readonly Choice[] = [
  { value: '', label: 'Your organization' },
  { value: 'all', label: 'All organizations' },
];

function form({ viewed, may }: Visit, filters: Filters, names: ReadonlyMap<string, string>): Html {
  const actions = Object.keys(auditActions).map((value) => ({ value, label: value.replaceAll(/[._]/g, ' ') }));
  const actors = [...names].map(([value, label]) => ({
    value,
    label: value.startsWith('key_') ? `key ${label}` : label,
  }));
  const isOfPlatform = viewed === null && may('organizations');
  return html`<form class="filters" method="get" action="/portal/audit">
    ${isOfPlatform ? select('organizations', 'Organization', extents, filters.organizations) : null}
    ${select('action', 'Action', withChosen([{ value: '', label: 'All actions' }, ...actions], filters.action), filters.action)}
    ${select('actor_id', 'Actor', withChosen([{ value: '', label: 'All actors' }, ...actors], filters.actor_id), filters.actor_id)}
    ${text('target_id', 'Target id', filters.target_id)} ${text('from', 'From (UTC)', filters.from, 'date')}
    ${text('until', 'Until (UTC)', filters.until, 'date')} <button>Show</button>
  </form>`;
}

function entries(list: ListAnswer<AuditEntryAnswer>, filters: Filters, { people, owners }: Names): MaybeHtml {
  if (list.data.length === 0) return empty('No changes found', 'Change or clear the filters.');
  const next = list.next_cursor === null ? null : pathWith('/portal/audit', { ...filters, after: list.next_cursor });
  // Entries about changes that an operator made to a tenant have that organization as their target.
  const names = owners === null ? people : new Map([...people, ...owners]);
  return html`${table({
    caption: 'Changes, newest first',
    columns: [
      { title: 'Change', isWide: true },
      ...(owners === null ? [] : [{ title: 'Organization' }]),
      { title: 'Time (UTC)' },
      { title: 'Details', isWide: true },
    ],
    rows: list.data.map((entry) => [
      sentenceOf(entry, names),
      ...(owners === null ? [] : [organizationLink(entry, owners)]),
      timeInUtc(entry.created_at * 1000),
      details(entry),
    ]),
  })}
  ${older(next)}`;
}

function organizationLink({ organization_id: id }: AuditEntryAnswer, owners: ReadonlyMap<string, string>): Html {
  return html`<a href="/portal/organizations/${id}">${owners.get(id) ?? id}</a>`;
}

/** Formats a value as it is in the log. */
const shown = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

interface Difference {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

function differences({ before, after }: AuditEntryAnswer): readonly Difference[] {
  const fields = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return fields
    .map((field) => ({ field, before: before?.[field], after: after?.[field] }))
    .filter((one) => JSON.stringify(one.before) !== JSON.stringify(one.after));
}

function details(entry: AuditEntryAnswer): Html {
  const { id, action, target_id: target, request_id: requestId } = entry;
  const list = differences(entry);
  return html`<details class="entry">
    <summary>${list.length === 0 ? 'Ids' : `${list.length} field${list.length === 1 ? '' : 's'}`}</summary>
    <dl class="facts">
      ${list.map(
        ({ field, before, after }) =>
          html`<dt>${field}</dt>
            <dd>${change(before, after)}</dd>`,
      )}
      <dt>action</dt>
      <dd><code>${action}</code></dd>
      <dt>target</dt>
      <dd><code>${target}</code></dd>
      ${
        requestId === null
          ? null
          : html`<dt>request</dt>
              <dd><code>${requestId}</code></dd>`
      }
      <dt>entry</dt>
      <dd><code>${id}</code></dd>
    </dl>
  </details>`;
}

function change(before: unknown, after: unknown): MaybeHtml {
  if (before === undefined || before === null) return shown(after ?? null);
  return html`<del>${shown(before)}</del> ${after === undefined ? null : html`<ins>${shown(after)}</ins>`}`;
}
