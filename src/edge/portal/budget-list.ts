import { timeOf, usd } from './format.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { section } from './lists.ts';
import { badge, table } from './ui.ts';
import { pathWith, type Visit } from './visit.ts';

/** Budgets as a list with how far each is spent, alone or as part of another page. */

export interface BudgetAnswer {
  readonly id: string;
  readonly scope: { readonly type: 'project' | 'api_key' | 'user'; readonly id: string | null };
  readonly period: 'daily' | 'monthly';
  readonly mode: 'soft' | 'hard';
  readonly amount: string;
  readonly alert_percents: readonly number[];
  readonly spent: string | null;
  readonly held: string | null;
  readonly resets_at: number;
}

export interface BudgetPage {
  readonly data: readonly BudgetAnswer[];
  readonly has_more: boolean;
  readonly last_id: string | null;
}

export function scopeOf({ scope: { type, id } }: BudgetAnswer): MaybeHtml {
  if (id === null) return 'each end user';
  if (type === 'user') return html`end user <strong>${id}</strong>`;
  const href = type === 'project' ? `/portal/projects/${id}` : `/portal/keys/${id}`;
  return html`${type === 'project' ? 'project' : 'key'} <a href="${href}"><code>${id}</code></a>`;
}

/** How far it is spent; browsers draw the bar. */
export function spentOf({ spent, held, amount }: BudgetAnswer): MaybeHtml {
  if (spent === null) return html`<span class="quiet">by end user</span>`;
  const part = Math.min(1, Number(spent) / Number(amount));
  return html`<meter min="0" max="1" high="0.8" optimum="0" value="${part.toFixed(4)}" aria-label="spent">
      ${Math.round(part * 100)}%
    </meter>
    ${usd(spent)}${held === null || held === '0' ? null : html`<br /><span class="quiet">${usd(held)} held</span>`}`;
}

export function budgetTable(budgets: readonly BudgetAnswer[], mayChange: boolean): Html {
  return table({
    caption: 'Budgets, newest first',
    columns: [
      { title: 'Of' },
      { title: 'Per' },
      { title: 'Amount', isNumber: true },
      { title: 'Spent' },
      { title: 'At its end' },
      { title: 'Resets' },
      ...(mayChange ? [{ title: 'Action' }] : []),
    ],
    rows: budgets.map((budget) => [
      scopeOf(budget),
      budget.period === 'daily' ? 'day' : 'month',
      usd(budget.amount),
      spentOf(budget),
      budget.mode === 'hard' ? badge('busy', 'refuses') : badge('plain', 'tells'),
      timeOf(budget.resets_at, ''),
      ...(mayChange ? [html`<a href="/portal/budgets/${budget.id}">Change</a>`] : []),
    ]),
  });
}

/** What applies to a key or a project: part of its page; nothing where there is none. */
export async function budgetSection(visit: Visit, type: 'project' | 'api_key', id: string): Promise<MaybeHtml> {
  if (!visit.mayOwn('budgets.read')) return null;
  const path = pathWith('/v1/budgets', { scope_type: type, scope_id: id, limit: 50 });
  const { data } = await visit.get<BudgetPage>(path);
  const mayChange = visit.may('budgets');
  const make = mayChange
    ? html`<p class="buttons">
        <a class="button" href="${pathWith('/portal/budgets/new', { type, id })}">New budget</a>
      </p>`
    : null;
  if (data.length === 0) return make === null ? null : section('budgets', 'Budgets', make);
  return section('budgets', 'Budgets', html`${budgetTable(data, mayChange)} ${make}`);
}
