import { AppError } from '#base/errors.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import { utcText } from '#base/utc.ts';
import type { HardBudget, HoldRefusal } from '#core/admission/admission.ts';

const owners: Readonly<Record<HardBudget['spending']['type'], string>> = {
  project: 'this project',
  api_key: 'this API key',
  user: 'this end user',
};

const namedMax = 3;

function modelsText({ models = null }: HardBudget['spending']): string {
  if (models === null) return '';
  const more = models.length > namedMax ? ` and ${models.length - namedMax} more` : '';
  return ` for the model${models.length === 1 ? '' : 's'} ${models.slice(0, namedMax).join(', ')}${more}`;
}

/** Describes the budget, and when its next period begins. */
function nameOf({ spending, allowedPicoUsd }: HardBudget): { readonly name: string; readonly resets: string } {
  const { type, period, toMs } = spending;
  const name = `The ${period} budget of ${owners[type]}${modelsText(spending)}, ${formatUsd(allowedPicoUsd)} USD,`;
  return { name, resets: period === 'total' ? 'it does not reset by itself' : `it resets at ${utcText(toMs)}` };
}

/** Tells SDKs not to retry by themselves. They obey any wait, and a wait until the next period would hang the call. */
function headersOf({ spending }: HardBudget, nowMs: number): Record<string, string> {
  if (spending.period === 'total') return { 'x-should-retry': 'false' };
  const seconds = Math.max(1, Math.ceil((spending.toMs - nowMs) / 1000));
  return { 'retry-after': String(seconds), 'x-should-retry': 'false' };
}

type Exceeded = Extract<HoldRefusal, { readonly code: 'budget_exceeded' }>;

export function budgetError({ budget, ...amounts }: Exceeded, nowMs: number): AppError {
  const { name, resets } = nameOf(budget);
  const spent = formatUsd(amounts.spentPicoUsd - budget.forgivenPicoUsd);
  const held = formatUsd(amounts.heldMicroUsd * PICO_PER_MICRO);
  const needed = formatUsd(amounts.neededMicroUsd * PICO_PER_MICRO);
  const message = `${name} does not cover this request: spent ${spent} USD, held by running requests ${held} USD, needed ${needed} USD; ${resets}.`;
  return new AppError('budget_exceeded', { message, headers: headersOf(budget, nowMs), reason: 'budget' });
}

/** Returns the error for a stream whose cost has reached the budget. */
export function budgetUsedUp(budget: HardBudget): AppError {
  const { name, resets } = nameOf(budget);
  const message = `${name} is used up, so the response ended early; ${resets}.`;
  return new AppError('budget_exceeded', { message, reason: 'budget' });
}
