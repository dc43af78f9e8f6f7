import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { SummaryAnswer, WalletAnswer } from './answers.ts';
import { counted, usd } from './format.ts';
import { html, type MaybeHtml } from './html.ts';
import { notice } from './ui.ts';
import { pathWith, type Visit } from './visit.ts';

/** How long a balance lasts at the pace of the last seven days. */

const dayMs = 86_400_000;
const paceDays = 7;
/** Below so many days a balance is low: over a weekend nobody adds credit. */
const lowDays = 3;

export interface Runway {
  /** What a day of the last seven cost, an exact decimal in USD; null where the visitor may not see that. */
  readonly perDay: string | null;
  /** How many such days what is available pays for; null where nothing was spent. */
  readonly days: number | null;
}

const pico = (decimal: string): bigint => parseDecimal(decimal, PICO_DIGITS) ?? 0n;

/** @param weekCost what the last seven days cost */
export function runwayOf({ available }: WalletAnswer, weekCost: string): Runway {
  const week = pico(weekCost);
  if (week === 0n) return { perDay: '0', days: null };
  const tenths = (pico(available) * 10n * BigInt(paceDays)) / week;
  return { perDay: formatUsd(week / BigInt(paceDays)), days: Math.max(0, Number(tenths) / 10) };
}

/** From a whole hour on: where a span cuts an hour, its requests are read one by one. */
export async function readRunway(
  { get, may }: Visit,
  wallet: WalletAnswer,
  { nowMs, organization }: { readonly nowMs: number; readonly organization: string },
): Promise<Runway> {
  if (!may('usage.read')) return { perDay: null, days: null };
  const hourMs = nowMs - (nowMs % 3_600_000);
  const span = { from: new Date(hourMs - paceDays * dayMs).toISOString(), organization_id: organization };
  const { totals } = await get<SummaryAnswer>(pathWith('/v1/usage/summary', span));
  return runwayOf(wallet, totals.cost);
}

/** Of how many days a balance lasts, in words; null where nobody knows. */
export function runwayText({ days, perDay }: Runway): string | null {
  if (perDay === null) return null;
  if (days === null) return 'nothing was spent in the last 7 days';
  if (days >= 1000) return 'lasts for years at the pace of the last 7 days';
  const shown = days >= 10 ? counted(Math.floor(days), 'day') : `${days} days`;
  return `lasts about ${shown} at the pace of the last 7 days`;
}

/** Said before it bites, and when it does; null where there is enough. */
export function balanceWarning({ available }: WalletAnswer, { days, perDay }: Runway, mayBook: boolean): MaybeHtml {
  const mend = mayBook
    ? html`<a href="/portal/wallet">Add credit</a>.`
    : html`Ask the operator of this gateway for credit.`;
  if (pico(available) <= 0n) {
    return notice(
      'bad',
      html`The balance pays for nothing more: requests are refused with 402 until there is credit. ${mend}`,
    );
  }
  if (days === null || days >= lowDays) return null;
  return notice(
    'bad',
    html`The balance is low: ${usd(available)} last about ${days} days at the pace of the last 7 days, of
    ${usd(perDay ?? '0')} a day. At zero requests are refused with 402. ${mend}`,
  );
}
