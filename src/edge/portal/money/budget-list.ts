import type { BudgetAnswer } from '#edge/contract/budgets.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import { readKeys, readPages } from '#edge/portal/frame/frame.ts';
import {
  badge,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  section,
  table,
  timeOf,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** A list of budgets with their spending, as a page or as a section of another page. */

/** Names of keys and projects by id, as far as the visitor may see them. */
export type ScopeNames = ReadonlyMap<string, string>;

interface Named {
  readonly id: string;
  readonly name: string;
}

/** Reads the names of keys or projects. Returns an empty list if the visitor may not list them. */
export async function readNamed(visit: Visit, type: 'project' | 'api_key'): Promise<readonly Named[]> {
  if (type === 'api_key') return visit.may('keys') ? readKeys(visit, { status: 'active' }) : [];
  return visit.may('projects') ? readPages<ProjectAnswer>(visit, '/v1/projects') : [];
}

/** Reads the names of the keys and projects that these budgets limit. */
export async function readScopeNames(visit: Visit, budgets: readonly BudgetAnswer[]): Promise<ScopeNames> {
  const types = (['project', 'api_key'] as const).filter((type) => budgets.some(({ scope }) => scope.type === type));
  const lists = await Promise.all(types.map((type) => readNamed(visit, type)));
  return new Map(lists.flat().map(({ id, name }) => [id, name]));
}

export function scopeOf({ scope: { type, id } }: BudgetAnswer, names: ScopeNames): MaybeHtml {
  if (id === null) return 'each end user';
  if (type === 'user') return html`end user <strong class="clipped" title="${id}">${id}</strong>`;
  const href = type === 'project' ? `/portal/projects/${id}` : `/portal/keys/${id}`;
  const name = names.get(id);
  // A visitor who may not see the name may not open the page either.
  const what = name === undefined ? html`<code>${id}</code>` : html`<a href="${href}" title="${id}">${name}</a>`;
  return html`${type === 'project' ? 'project' : 'key'} ${what}`;
}

/** Nouns of the periods. */
export const periodNames: Readonly<Record<BudgetAnswer['period'], string>> = {
  daily: 'day',
  weekly: 'week',
  monthly: 'month',
  quarterly: 'quarter',
  yearly: 'year',
  total: 'total',
};

/** Formats the amount with the raise in effect. */
export function amountOf({ amount, raise }: BudgetAnswer): MaybeHtml {
  if (raise === null) return usd(amount);
  return html`${usd(amount)}<br /><span class="quiet">+ ${usd(raise.amount)} until ${timeOf(raise.until, '')}</span>`;
}

const modelsOf = ({ models }: BudgetAnswer): MaybeHtml =>
  models === null ? null : html`<br /><span class="quiet">${models.join(', ')}</span>`;

/** Formats how much of a budget is spent. Browsers draw the bar. */
export function spentOf({ spent, held, amount, raise }: BudgetAnswer): MaybeHtml {
  if (spent === null) return html`<span class="quiet">per end user</span>`;
  const part = Math.min(1, Number(spent) / (Number(amount) + Number(raise?.amount ?? '0')));
  return html`<meter min="0" max="1" high="0.8" optimum="0" value="${part.toFixed(4)}" aria-label="spent">
      ${Math.round(part * 100)}%
    </meter>
    ${usd(spent)}${held === null || held === '0' ? null : html`<br /><span class="quiet">${usd(held)} held</span>`}`;
}

export interface BudgetTableOptions {
  readonly names: ScopeNames;
  readonly mayChange: boolean;
  /** See `TableOptions`. */
  readonly list?: 'whole' | 'part';
}

export function budgetTable(budgets: readonly BudgetAnswer[], { names, mayChange, ...list }: BudgetTableOptions): Html {
  return table({
    caption: 'Budgets, newest first',
    ...list,
    columns: [
      { title: 'Scope', isWide: true },
      { title: 'Period' },
      { title: 'Amount', isNumber: true },
      { title: 'Spent' },
      { title: 'When exceeded' },
      { title: 'Resets' },
      ...(mayChange ? [{ title: 'Action' }] : []),
    ],
    rows: budgets.map((budget) => [
      html`${scopeOf(budget, names)}${modelsOf(budget)}`,
      periodNames[budget.period],
      amountOf(budget),
      spentOf(budget),
      budget.mode === 'hard' ? badge('busy', 'block') : badge('plain', 'notify'),
      timeOf(budget.resets_at, 'never'),
      ...(mayChange ? [html`<a href="/portal/budgets/${budget.id}">Change</a>`] : []),
    ]),
  });
}

/** Lists the budgets of a key or project, for its page. Returns null if there is nothing to show. */
export async function budgetSection(visit: Visit, type: 'project' | 'api_key', id: string): Promise<MaybeHtml> {
  if (!visit.mayOwn('budgets.read')) return null;
  const path = pathWith('/v1/budgets', { scope_type: type, scope_id: id, limit: 50 });
  const { data } = await visit.get<CursorPageAnswer<BudgetAnswer>>(path);
  const mayChange = visit.may('budgets');
  const make = mayChange
    ? html`<p class="buttons">
        <a class="button" href="${pathWith('/portal/budgets/new', { type, id })}">New budget</a>
      </p>`
    : null;
  if (data.length === 0) return make === null ? null : section('budgets', 'Budgets', make);
  return section(
    'budgets',
    'Budgets',
    html`${budgetTable(data, { names: await readScopeNames(visit, data), mayChange })} ${make}`,
  );
}
