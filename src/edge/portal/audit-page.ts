import type { AuditAnswer } from './admin-answers.ts';
import type { ListAnswer } from './answers.ts';
import { actorNames } from './audit-names.ts';
import { auditActions, sentenceOf } from './audit-words.ts';
import { timeToSecond } from './format.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { statusOf } from './key-pages.ts';
import { page } from './layout.ts';
import { type Choice, empty, notice, older, select, table } from './ui.ts';
import { pathWith, queryOf, RefusedError, type Visit } from './visit.ts';

const pageSize = 50;

interface Filters {
  readonly action: string;
  readonly actor_id: string;
  readonly target_id: string;
  readonly from: string;
  readonly to: string;
}

function filtersOf({ context }: Visit): Filters {
  const asked = (name: string): string => queryOf(context, name).trim();
  return {
    action: asked('action'),
    actor_id: asked('actor_id'),
    target_id: asked('target_id'),
    from: asked('from'),
    to: asked('to'),
  };
}

export async function auditPage(visit: Visit): Promise<Response> {
  const filters = filtersOf(visit);
  const path = pathWith('/v1/audit', { ...filters, limit: pageSize, after: queryOf(visit.context, 'after') });
  const [names, list] = await Promise.all([
    actorNames(visit, visit.organizationId),
    visit.send<ListAnswer<AuditAnswer>>('GET', path),
  ]);
  // Filters that are wrong are said above them; who may not read it has nothing to filter.
  if (!list.ok && list.refusal.status === 403) throw new RefusedError(list.refusal);
  const body = html`<p class="lead">Who changed what, newest first; never a secret. Days are those of UTC.</p>
    ${form(filters, names)} ${list.ok ? entries(list.body, filters, names) : notice('bad', list.refusal.message)}`;
  return page(visit, { title: 'Audit log', body, status: list.ok ? 200 : statusOf(list.refusal) });
}

function text(name: keyof Filters, label: string, value: string, type: 'text' | 'date' = 'text'): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input type="${type}" id="${name}" name="${name}" value="${value}" maxlength="200" autocomplete="off" />
  </div>`;
}

/** What was asked for stays among the choices, known or not. */
function withChosen(choices: readonly Choice[], chosen: string): readonly Choice[] {
  const isThere = chosen === '' || choices.some(({ value }) => value === chosen);
  return isThere ? choices : [...choices, { value: chosen, label: chosen }];
}

function form(filters: Filters, names: ReadonlyMap<string, string>): Html {
  const actions = Object.keys(auditActions).map((value) => ({ value, label: value.replaceAll(/[._]/g, ' ') }));
  const actors = [...names].map(([value, label]) => ({
    value,
    label: value.startsWith('key_') ? `key ${label}` : label,
  }));
  return html`<form class="filters" method="get" action="/portal/audit">
    ${select('action', 'What', withChosen([{ value: '', label: 'Everything' }, ...actions], filters.action), filters.action)}
    ${select('actor_id', 'By', withChosen([{ value: '', label: 'Anybody' }, ...actors], filters.actor_id), filters.actor_id)}
    ${text('target_id', 'Of (an id)', filters.target_id)} ${text('from', 'From', filters.from, 'date')}
    ${text('to', 'Before', filters.to, 'date')} <button>Show</button>
  </form>`;
}

function entries(list: ListAnswer<AuditAnswer>, filters: Filters, names: ReadonlyMap<string, string>): MaybeHtml {
  if (list.data.length === 0) return empty('Nothing here', 'No change fits what was asked for.');
  const next = list.next_cursor === null ? null : pathWith('/portal/audit', { ...filters, after: list.next_cursor });
  return html`${table({
    caption: 'Changes, newest first',
    columns: [{ title: 'What' }, { title: 'Time' }, { title: 'Details' }],
    rows: list.data.map((entry) => [sentenceOf(entry, names), timeToSecond(entry.created_at * 1000), details(entry)]),
  })}
  ${older(next)}`;
}

/** A value as the log has it. */
const shown = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

interface Difference {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

function differences({ before, after }: AuditAnswer): readonly Difference[] {
  const fields = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return fields
    .map((field) => ({ field, before: before?.[field], after: after?.[field] }))
    .filter((one) => JSON.stringify(one.before) !== JSON.stringify(one.after));
}

function details(entry: AuditAnswer): Html {
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
      <dt>of</dt>
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
