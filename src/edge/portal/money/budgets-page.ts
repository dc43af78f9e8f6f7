import type { BudgetAnswer } from '#edge/contract/budgets.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  beganWith,
  changesIn,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  notice,
  noticeOf,
  numberOf,
  older,
  pathWith,
  queryOf,
  radios,
  type Refusal,
  refused,
  RefusedError,
  renamed,
  select,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { budgetTable, readNamed, readScopeNames, scopeOf, spentOf } from './budget-list.ts';

/** Lists budgets with their spending, and has the forms that create, change and delete budgets. */

const pageSize = 50;
const notices: Readonly<Record<string, string>> = {
  made: 'Budget created. It applies to all requests from now on.',
  saved: 'Budget saved.',
  deleted: 'Budget deleted.',
};

const types = [
  { value: 'project', label: 'Project' },
  { value: 'api_key', label: 'API key' },
  { value: 'user', label: 'End user' },
  { value: 'each_user', label: 'Each end user' },
] as const;
const periods = [
  { value: 'monthly', label: 'Month' },
  { value: 'daily', label: 'Day' },
] as const;
const modes = [
  { value: 'hard', label: 'Block' },
  { value: 'soft', label: 'Notify' },
] as const;

const pathOf = (id: string): string => `/v1/budgets/${encodeURIComponent(id)}`;

export async function budgetsPage(visit: Visit): Promise<Response> {
  const asked = { limit: pageSize, after: queryOf(visit.context, 'after') };
  const list = await visit.get<CursorPageAnswer<BudgetAnswer>>(pathWith('/v1/budgets', asked));
  const mayChange = visit.may('budgets');
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">
      A budget limits the spending of a project, an API key or an end user per day or month (UTC), in addition to the
      wallet.
    </p>
    ${list.data.length === 0 ? empty('No budgets', mayChange ? 'Create one to limit spending.' : 'Only the wallet limits spending.') : budgetTable(list.data, await readScopeNames(visit, list.data), mayChange)}
    ${older(list.has_more ? pathWith('/portal/budgets', { after: list.last_id }) : null)}`;
  const actions = mayChange ? html`<a class="button primary" href="/portal/budgets/new">New budget</a>` : null;
  return page(visit, { title: 'Budgets', actions, body });
}

interface Typed {
  readonly type: string;
  readonly id: string;
  readonly period: string;
  readonly amount: string;
  readonly mode: string;
  readonly alerts: string;
}

/** The id of an end user is the text that requests send, spaces included, so it is not trimmed. */
const typedOf = (form: Form): Typed => ({
  type: form.text('type'),
  id: form.text('type') === 'user' ? form.text('id') : form.text('id').trim(),
  period: form.text('period'),
  amount: form.text('amount').trim(),
  mode: form.text('mode'),
  alerts: form.text('alerts'),
});

/** Passes texts that are no numbers to the API unchanged, so that the API reports the problem. */
const percentsOf = (text: string): readonly unknown[] =>
  text
    .split(/[\s,%]+/)
    .filter((word) => word !== '')
    .map(numberOf);

function changedFields({ amount, mode, alerts }: Typed, refusal: Refusal | null): Html {
  return html`${field({ name: 'amount', id: 'amount', label: 'Amount in USD', value: amount, refusal, isRequired: true, inputMode: 'decimal', maxLength: 40, placeholder: '25' })}
  ${radios({ name: 'mode', legend: 'When exceeded', choices: modes, chosen: mode, hint: '"Block" rejects requests, so that spending never exceeds the amount. "Notify" only sends alerts.' })}
  ${field({ name: 'alerts', label: 'Alert thresholds in percent', value: alerts, refusal, hint: 'Owners and administrators are notified once per threshold and period. Leave empty for no alerts.', placeholder: '80, 100', maxLength: 100 })}`;
}

/** Returns the form's name for an API field, or for a member of an API field, that has another name in the form. */
function formNameOf(name: string): string {
  if (name === 'scope.id') return 'id';
  return /^alert_percents(?:\.|$)/.test(name) ? 'alerts' : name;
}

const ofForm = (refusal: Refusal): Refusal => renamed(refusal, formNameOf);

export async function newBudgetPage(visit: Visit): Promise<Response> {
  const type = queryOf(visit.context, 'type') || 'project';
  const typed = {
    type,
    id: queryOf(visit.context, 'id'),
    period: 'monthly',
    amount: '',
    mode: 'hard',
    alerts: '80, 100',
  };
  return newPage(visit, typed, null);
}

async function newPage(visit: Visit, typed: Typed, refusal: Refusal | null): Promise<Response> {
  const [projects, keys] = await Promise.all([readNamed(visit, 'project'), readNamed(visit, 'api_key')]);
  const body = html`<form class="form" method="post" action="/portal/budgets/new">
    ${formToken(visit)} ${refused(refusal)} ${select('type', 'Scope', types, typed.type)}
    ${field({ name: 'id', label: 'Name or id', value: typed.id, refusal, hint: 'Name or id of the project or key, or the end user id that requests send. Leave empty for each end user.', maxLength: 256, list: 'named' })}
    <datalist id="named">
      ${projects.map(({ id, name }) => html`<option value="${id}">project ${name}</option>`)}
      ${keys.map(({ id, name }) => html`<option value="${id}">key ${name}</option>`)}
    </datalist>
    ${radios({ name: 'period', legend: 'Period', choices: periods, chosen: typed.period, hint: 'Periods are in UTC. A request belongs to the period in which it was accepted.' })}
    ${changedFields(typed, refusal)}
    <p class="buttons"><button class="primary">Create budget</button> <a href="/portal/budgets">Cancel</a></p>
  </form>`;
  return page(visit, { title: 'New budget', body, status: refusal === null ? 200 : statusOf(refusal) });
}

/**
 * Replaces the name of a project or key by its id, if exactly one has that name. Other texts go to the API unchanged.
 */
async function idOf(visit: Visit, { type, id: text }: Typed): Promise<string> {
  if ((type !== 'project' && type !== 'api_key') || text === '') return text;
  const [one, ...others] = (await readNamed(visit, type)).filter(({ name }) => name === text);
  return one === undefined || others.length > 0 ? text : one.id;
}

const namedAndEach: Refusal = {
  status: 400,
  message: 'The budget was not created.',
  problems: new Map([['id', 'must be empty for each end user. To limit one end user, choose the scope "End user"']]),
};

export async function createBudget(visit: Visit, form: Form): Promise<Response> {
  const typed = typedOf(form);
  if (typed.type === 'each_user' && typed.id !== '') return newPage(visit, typed, namedAndEach);
  const scope =
    typed.type === 'each_user' ? { type: 'user', id: null } : { type: typed.type, id: await idOf(visit, typed) };
  const body = { scope, period: typed.period, ...toBody(typed) };
  const made = await visit.send('POST', '/v1/budgets', body);
  if (made.ok) return visit.context.redirect('/portal/budgets?notice=made', 303);
  if (made.refusal.status === 403) throw new RefusedError(made.refusal);
  return newPage(visit, typed, ofForm(made.refusal));
}

export async function budgetPage(visit: Visit, id: string): Promise<Response> {
  const budget = await visit.get<BudgetAnswer>(pathOf(id));
  return changePage(visit, budget, null);
}

const textsOf = ({ amount, mode, alert_percents: percents }: BudgetAnswer): Typed => ({
  type: '',
  id: '',
  period: '',
  amount,
  mode,
  alerts: percents.join(', '),
});

const toBody = ({ amount, mode, alerts }: Typed) => ({ amount, mode, alert_percents: percentsOf(alerts) });

/** A form that the API rejected. */
interface Refused {
  readonly form: Form;
  readonly refusal: Refusal;
}

async function changePage(visit: Visit, budget: BudgetAnswer, wrong: Refused | null) {
  const { form = null, refusal = null } = wrong ?? {};
  const typed = form === null ? textsOf(budget) : typedOf(form);
  const names = await readScopeNames(visit, [budget]);
  const body = html`<p class="lead">
      Limit for ${scopeOf(budget, names)} per ${budget.period === 'daily' ? 'day' : 'month'}. Spent: ${spentOf(budget)}.
      Resets at ${timeOf(budget.resets_at, '')}.
    </p>
    <form class="form" method="post" action="/portal/budgets/${budget.id}">
      ${formToken(visit)} ${beganWith(toBody(textsOf(budget)), form)} ${refused(refusal)}
      ${changedFields(typed, refusal)}
      <p class="buttons"><button class="primary">Save</button> <a href="/portal/budgets">Cancel</a></p>
    </form>
    <form method="post" action="/portal/budgets/${budget.id}/delete">
      ${formToken(visit)}
      <p class="hint">Deleting the budget removes this limit from the next request on.</p>
      <p class="buttons"><button class="danger">Delete budget</button></p>
    </form>`;
  return page(visit, { title: 'Budget', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function changeBudget(visit: Visit, id: string, form: Form): Promise<Response> {
  const changes = changesIn(form, toBody(typedOf(form)));
  const changed = isEmpty(changes) ? null : await visit.send('PATCH', pathOf(id), changes);
  if (changed === null || changed.ok) return visit.context.redirect('/portal/budgets?notice=saved', 303);
  const budget = await visit.get<BudgetAnswer>(pathOf(id));
  return changePage(visit, budget, { form, refusal: ofForm(changed.refusal) });
}

export async function deleteBudget(visit: Visit, id: string): Promise<Response> {
  const deleted = await visit.send('DELETE', pathOf(id));
  if (!deleted.ok) throw new RefusedError(deleted.refusal);
  return visit.context.redirect('/portal/budgets?notice=deleted', 303);
}
