import type { LitellmKey } from '#core/litellm/litellm.ts';

/** Converts LiteLLM's budgets, limits and times. */

/** Why a team or key is not imported. */
export class NotImported extends Error {}

export interface BudgetBody {
  readonly period: 'daily' | 'weekly' | 'monthly' | 'total';
  readonly amount: string;
  readonly opening_spent?: string;
}

/** Periods by LiteLLM's durations. It resets 7 days on Mondays, and 30 days on the first of a month, as one month. */
const periods: Readonly<Record<string, BudgetBody['period'] | undefined>> = {
  '1d': 'daily',
  '24h': 'daily',
  '7d': 'weekly',
  '1w': 'weekly',
  '30d': 'monthly',
  '1mo': 'monthly',
};

const usdMax = 1_000_000_000_000;
const int4Max = 2_147_483_647;
/** Smallest amount that counts: one pico-dollar. */
const leastSpent = 1e-12;

/** Returns a text without control characters. */
export const printable = (text: string): string => text.replaceAll(/\p{Cc}+/gu, ' ').trim();

type Money = Pick<LitellmKey, 'max_budget' | 'budget_duration' | 'budget_reset_at'>;

/**
 * Returns the budget, or notes why it cannot be carried over.
 * @param nowMs milliseconds since the Unix epoch
 * @throws NotImported for a budget that allows nothing
 */
export function budgetsOf(
  money: Money,
  spend: LitellmKey['spend'],
  nowMs: number,
  add: (text: string) => void,
): BudgetBody[] {
  if (money.max_budget === null) return [];
  const most = Number(money.max_budget);
  const spent = spentOf(money, spend, nowMs);
  if (Number.isNaN(most) || Number.isNaN(spent)) throw new NotImported('max_budget or spend is not a number');
  if (most < 0.000_001 || spent > usdMax) throw new NotImported('its budget allows no requests');
  const period = money.budget_duration === null ? 'total' : periods[money.budget_duration];
  if (period !== undefined && most <= usdMax) {
    return [{ period, amount: decimal(most, 6), ...(spent >= leastSpent && { opening_spent: decimal(spent, 12) }) }];
  }
  add(`max_budget: not imported; ${whyNot(money, most, spent)}`);
  return [];
}

/** Returns what counts against the budget: LiteLLM resets it some time after the end of the period. */
function spentOf({ budget_reset_at: reset }: Money, spend: LitellmKey['spend'], nowMs: number): number {
  const resetMs = timeOf(reset, 'budget_reset_at');
  return resetMs !== null && resetMs <= nowMs ? 0 : Number(spend ?? 0);
}

function whyNot({ budget_duration: duration }: Money, most: number, spent: number): string {
  if (most > usdMax) return `it is above ${usdMax} USD`;
  const amounts = `${decimal(most, 6)} USD per ${printable(duration ?? '')}, of which ${decimal(spent, 6)} are spent`;
  return `${amounts}; Headgate has budgets per day, week, month, quarter and year`;
}

const decimal = (value: number, places: number): string => value.toFixed(places).replace(/\.?0+$/, '') || '0';

/** @throws NotImported for a limit that allows nothing */
export function limitOf(
  value: LitellmKey['rpm_limit'],
  name: 'rpm_limit' | 'tpm_limit' | 'max_parallel_requests',
): number | null {
  if (value === null) return null;
  const limit = Number(value);
  if (!Number.isInteger(limit) || limit < 1) throw new NotImported(`its ${name} allows no requests`);
  return Math.min(limit, name === 'tpm_limit' ? Number.MAX_SAFE_INTEGER : int4Max);
}

const secondsMax = 253_402_300_799;

/** Reads a UTC time without a time zone. @returns null for no time, and for one beyond the year 9999 */
export function timeOf(value: string | null, name: string): number | null {
  if (value === null || value === 'infinity') return null;
  if (/^\d{5,}-/.test(value) && !value.endsWith('BC')) return null;
  const ms = value === '-infinity' ? 0 : Date.parse(/Z|[+-]\d\d:\d\d$/.test(value) ? value : `${value}Z`);
  if (Number.isNaN(ms)) throw new NotImported(`${name} is not a time`);
  return ms > secondsMax * 1000 ? null : Math.max(0, ms);
}
