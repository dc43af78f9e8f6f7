import type { CostBudgetAnswer } from '#edge/contract/costs.ts';
import {
  field,
  figures,
  type Form,
  formToken,
  html,
  type Html,
  type Refusal,
  refused,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { amountsText } from './amount-text.ts';

/** The monthly budget of the visitor's organization for nodes and GPUs, and the forecast of this month. */

const path = '/v1/billing/budget';

/** A rejected form, shown again. */
export interface RejectedBudget {
  readonly form: Form;
  readonly refusal: Refusal;
}

export async function budgetSection(visit: Visit, rejected: RejectedBudget | null): Promise<Html> {
  const { budget, month, ...costs } = await visit.get<CostBudgetAnswer>(path);
  const partText = (percent: number | null): { readonly note?: string } =>
    percent === null ? {} : { note: `${percent} % of the budget` };
  return html`<section aria-labelledby="budget-title">
    <h2 id="budget-title">Budget and forecast of ${visit.signedIn.member.organization.name}</h2>
    ${figures([
      { label: `Costs in ${month}`, value: amountsText(costs.spent), ...partText(costs.spent_percent) },
      { label: 'Forecast for the month', value: amountsText(costs.forecast), ...partText(costs.forecast_percent) },
      { label: 'Monthly budget', value: budget === null ? 'none' : `${budget.amount} ${budget.currency}` },
    ])}
    <p class="hint">
      The forecast assumes that all nodes and models that run now keep running until the end of the month (UTC).
    </p>
    ${visit.may('costs.currency') ? budgetForm(visit, budget, rejected) : null}
  </section>`;
}

function budgetForm(visit: Visit, budget: CostBudgetAnswer['budget'], rejected: RejectedBudget | null): Html {
  const refusal = rejected?.refusal ?? null;
  const typed = (name: string, value: string): string => rejected?.form.text(name) ?? value;
  const percents = (budget?.alert_percents ?? [80, 100]).join(', ');
  return html`<form class="form" method="post" action="/portal/costs/budget">
    ${formToken(visit)} ${refused(refusal)}
    <div class="grid">
      ${field({ name: 'amount', label: 'Monthly budget', value: typed('amount', budget?.amount ?? ''), refusal, inputMode: 'decimal', maxLength: 40, hint: 'If empty, there is no budget. A budget sends alerts and stops nothing.' })}
      ${field({ id: 'budget-currency', name: 'currency', label: 'Budget currency', value: typed('currency', budget?.currency ?? ''), refusal, maxLength: 3, hint: 'If empty, the billing currency.' })}
      ${field({ name: 'alert_percents', label: 'Alert percentages', value: typed('alert_percents', percents), refusal, maxLength: 80, hint: 'Separated by commas.' })}
    </div>
    <p class="buttons"><button>Save budget</button></p>
  </form>`;
}

/** @returns the rejected form; null if the budget was saved */
export async function saveBudget(visit: Visit, form: Form): Promise<RejectedBudget | null> {
  const [amount, currency] = [form.text('amount').trim(), form.text('currency').trim()];
  const texts = form
    .text('alert_percents')
    .split(',')
    .map((text) => text.trim());
  const percents = texts.filter((text) => text !== '').map((text) => (/^\d{1,9}$/.test(text) ? Number(text) : text));
  const body = { amount, ...(currency !== '' && { currency }), alert_percents: percents };
  const saved = amount === '' ? await visit.send('DELETE', path) : await visit.send('PUT', path, body);
  return saved.ok ? null : { form, refusal: saved.refusal };
}
