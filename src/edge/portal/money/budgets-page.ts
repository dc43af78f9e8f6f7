import type { BudgetAnswer } from '#edge/contract/budgets.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import { assets, page, statusOf } from '#edge/portal/frame/frame.ts';
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
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { amountOf, budgetTable, periodNames, readNamed, readScopeNames, scopeOf, spentOf } from './budget-list.ts';

/** Lists budgets with their spending, and has the forms that create, change, raise, reset and delete budgets. */

const pageSize = 50;
const notices: Readonly<Record<string, string>> = {
  made: 'Budget created. It applies to all requests from now on.',
  saved: 'Budget saved.',
  raised: 'Budget raised.',
  lowered: 'Raise ended.',
  reset: 'Budget reset. Spending before the reset no longer counts.',
  deleted: 'Budget deleted.',
};

const types = [
  { value: 'project', label: 'Project' },
  { value: 'api_key', label: 'API key' },
  { value: 'user', label: 'End user' },
  { value: 'each_user', label: 'Each end user' },
] as const;
const periods = [
  { value: 'daily', label: 'Day' },
  { value: 'weekly', label: 'Week' },
  { value: 'monthly', label: 'Month' },
  { value: 'quarterly', label: 'Quarter' },
  { value: 'yearly', label: 'Year' },
  { value: 'total', label: 'Total, never resets' },
] as const;
const modes = [
  { value: 'hard', label: 'Block' },
  { value: 'soft', label: 'Notify' },
] as const;

const pathOf = (id: string): string => `/v1/budgets/${encodeURIComponent(id)}`;

export async function budgetsPage(visit: Visit): Promise<Response> {
  const asked = { limit: pageSize, after: queryOf(visit.context, 'after') };
  const list = await visit.get<CursorPageAnswer<BudgetAnswer>>(pathWith('/v1/budgets', asked));
  const isWhole = asked.after === '' && !list.has_more;
  const mayChange = visit.may('budgets');
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">
      A budget limits the spending of a project, an API key or an end user in a period (UTC), in addition to the wallet.
    </p>
    ${list.data.length === 0 ? empty('No budgets', mayChange ? 'Create one to limit spending.' : 'Only the wallet limits spending.') : budgetTable(list.data, { names: await readScopeNames(visit, list.data), mayChange, list: isWhole ? 'whole' : 'part' })}
    ${older(list.has_more ? pathWith('/portal/budgets', { after: list.last_id }) : null)}`;
  const actions = mayChange ? html`<a class="button primary" href="/portal/budgets/new">New budget</a>` : null;
  return page(visit, { title: 'Budgets', actions, body, script: assets.lists });
}

interface Typed {
  readonly type: string;
  readonly id: string;
  readonly period: string;
  /** Names between commas; empty for all models. */
  readonly models: string;
  readonly amount: string;
  readonly mode: string;
  readonly alerts: string;
}

/** The id of an end user is the text that requests send, spaces included, so it is not trimmed. */
const typedOf = (form: Form): Typed => ({
  type: form.text('type'),
  id: form.text('type') === 'user' ? form.text('id') : form.text('id').trim(),
  period: form.text('period'),
  models: form.text('models'),
  amount: form.text('amount').trim(),
  mode: form.text('mode'),
  alerts: form.text('alerts'),
});

const wordsOf = (text: string): readonly string[] => text.split(/[\s,]+/).filter((word) => word !== '');

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
  if (name.startsWith('models.')) return 'models';
  if (name.startsWith('raise.')) return name.replace('.', '_');
  return /^alert_percents(?:\.|$)/.test(name) ? 'alerts' : name;
}

const ofForm = (refusal: Refusal): Refusal => renamed(refusal, formNameOf);

export async function newBudgetPage(visit: Visit): Promise<Response> {
  const type = queryOf(visit.context, 'type') || 'project';
  const typed = {
    type,
    id: queryOf(visit.context, 'id'),
    period: 'monthly',
    models: '',
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
    ${select('period', 'Period (UTC)', periods, typed.period)}
    ${field({ name: 'models', label: 'Models', value: typed.models, refusal, hint: 'Model names, separated by commas. Only requests that these models answer count. Leave empty for all models.', maxLength: 10_000 })}
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
  const models = wordsOf(typed.models);
  const body = { scope, period: typed.period, models: models.length === 0 ? null : models, ...toBody(typed) };
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
  models: '',
  amount,
  mode,
  alerts: percents.join(', '),
});

const toBody = ({ amount, mode, alerts }: Typed) => ({ amount, mode, alert_percents: percentsOf(alerts) });

/** A form that the API rejected. */
interface Refused {
  /** Null if the fields of the budget are as they were. */
  readonly form: Form | null;
  readonly refusal: Refusal;
  /** The form of a raise. */
  readonly raise?: Form;
}

async function changePage(visit: Visit, budget: BudgetAnswer, wrong: Refused | null) {
  const { form = null, refusal = null } = wrong ?? {};
  const typed = form === null ? textsOf(budget) : typedOf(form);
  const names = await readScopeNames(visit, [budget]);
  const body = html`<p class="lead">
      Limit for ${scopeOf(budget, names)},
      ${budget.models === null ? 'all models' : `the models ${budget.models.join(', ')}`}. Period:
      ${periodNames[budget.period]}. Amount: ${amountOf(budget)}. Spent: ${spentOf(budget)}. Resets:
      ${timeOf(budget.resets_at, 'never')}.
    </p>
    <form class="form" method="post" action="/portal/budgets/${budget.id}">
      ${formToken(visit)} ${beganWith(toBody(textsOf(budget)), form)} ${refused(refusal)}
      ${changedFields(typed, refusal)}
      <p class="buttons"><button class="primary">Save</button> <a href="/portal/budgets">Cancel</a></p>
    </form>
    ${raiseForm(visit, budget, wrong)}
    ${budget.scope.id === null ? null : html`<p><a href="/portal/budgets/${budget.id}/reset">Reset the budget</a></p>`}
    <form method="post" action="/portal/budgets/${budget.id}/delete">
      ${formToken(visit)}
      <p class="hint">Deleting the budget removes this limit from the next request on.</p>
      <p class="buttons"><button class="danger">Delete budget</button></p>
    </form>`;
  return page(visit, { title: 'Budget', body, status: refusal === null ? 200 : statusOf(refusal) });
}

function raiseForm(visit: Visit, budget: BudgetAnswer, wrong: Refused | null): Html {
  const action = `/portal/budgets/${budget.id}/raise`;
  if (budget.raise !== null) {
    return html`<form method="post" action="${action}">
      ${formToken(visit)}
      <p class="buttons"><button name="end" value="true">End the raise</button></p>
    </form>`;
  }
  const { raise, refusal = null } = wrong ?? {};
  const typed = (name: string): string => raise?.text(name) ?? '';
  return html`<form class="form" method="post" action="${action}">
    ${formToken(visit)}
    ${field({ name: 'raise_amount', label: 'Raise by USD', value: typed('raise_amount'), refusal, inputMode: 'decimal', maxLength: 40, placeholder: '10' })}
    ${field({ name: 'raise_until', label: 'Raise ends (UTC)', value: typed('raise_until'), refusal, hint: 'A date, or date and time, such as 2027-01-31 or 2027-01-31 18:00.', maxLength: 40 })}
    <p class="buttons"><button>Raise temporarily</button></p>
  </form>`;
}

/** Returns seconds since the Unix epoch, or a text that is no time unchanged, so that the API reports the problem. */
function secondsOf(text: string): number | string {
  const isTime = /^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2})?$/.test(text);
  const ms = isTime ? Date.parse(`${text.slice(0, 10)}T${text.slice(11) || '00:00'}:00Z`) : Number.NaN;
  return Number.isNaN(ms) ? text : ms / 1000;
}

export async function raiseBudget(visit: Visit, id: string, form: Form): Promise<Response> {
  const isEnd = form.text('end') === 'true';
  const raise = { amount: form.text('raise_amount').trim(), until: secondsOf(form.text('raise_until').trim()) };
  const changed = await visit.send('PATCH', pathOf(id), { raise: isEnd ? null : raise });
  const notice = isEnd ? 'lowered' : 'raised';
  if (changed.ok) return visit.context.redirect(`/portal/budgets?notice=${notice}`, 303);
  if (changed.refusal.status === 403) throw new RefusedError(changed.refusal);
  const budget = await visit.get<BudgetAnswer>(pathOf(id));
  return changePage(visit, budget, { form: null, refusal: ofForm(changed.refusal), raise: form });
}

export async function resetBudgetPage(visit: Visit, id: string): Promise<Response> {
  const budget = await visit.get<BudgetAnswer>(pathOf(id));
  const names = await readScopeNames(visit, [budget]);
  const body = html`<div class="confirm">
    <p>
      The budget of ${scopeOf(budget, names)} starts again: ${usd(budget.spent ?? '0')} spent in this period no longer
      count. Requests that run now count with what they are charged after the reset.
    </p>
    <form method="post" action="/portal/budgets/${budget.id}/reset">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger">Reset budget</button> <a href="/portal/budgets/${budget.id}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: 'Reset the budget', body });
}

export async function resetBudget(visit: Visit, id: string): Promise<Response> {
  const changed = await visit.send('POST', `${pathOf(id)}/reset`);
  if (!changed.ok) throw new RefusedError(changed.refusal);
  return visit.context.redirect('/portal/budgets?notice=reset', 303);
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
