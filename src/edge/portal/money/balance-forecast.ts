import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { UsageSummaryAnswer } from '#edge/contract/usage.ts';
import type { WalletAnswer } from '#edge/contract/wallet.ts';
import { counted, html, type MaybeHtml, notice, pathWith, usd, type Visit } from '#edge/portal/ui/ui.ts';

/** Estimates how long a balance lasts at the average spending of the last seven days. */

const dayMs = 86_400_000;
const paceDays = 7;
/** Days below which a balance is low: nobody adds credit over a weekend. */
const lowDays = 3;

export interface Runway {
  /** Average cost per day of the last seven days, an exact decimal in USD; null if the visitor may not see usage. */
  readonly perDay: string | null;
  /** Days that the available balance lasts at this average; null if nothing was spent. */
  readonly days: number | null;
}

const pico = (decimal: string): bigint => parseDecimal(decimal, PICO_DIGITS) ?? 0n;

/** Computes the runway. @param weekCost cost of the last seven days */
export function runwayOf({ available }: WalletAnswer, weekCost: string): Runway {
  const week = pico(weekCost);
  if (week === 0n) return { perDay: '0', days: null };
  const tenths = (pico(available) * 10n * BigInt(paceDays)) / week;
  return { perDay: formatUsd(week / BigInt(paceDays)), days: Math.max(0, Number(tenths) / 10) };
}

/** Reads the runway. The span starts on a full hour, because a partial hour's requests are read one by one. */
export async function readRunway(
  { get, may }: Visit,
  wallet: WalletAnswer,
  { nowMs, organization }: { readonly nowMs: number; readonly organization: string },
): Promise<Runway> {
  if (!may('usage.read')) return { perDay: null, days: null };
  const hourMs = nowMs - (nowMs % 3_600_000);
  const span = { from: new Date(hourMs - paceDays * dayMs).toISOString(), organization_id: organization };
  const { totals } = await get<UsageSummaryAnswer>(pathWith('/v1/usage/summary', span));
  return runwayOf(wallet, totals.cost);
}

/** Describes the runway in words; null if it is unknown. */
export function runwayText({ days, perDay }: Runway): string | null {
  if (perDay === null) return null;
  if (days === null) return 'no spending in the last 7 days';
  if (days >= 1000) return 'lasts for years at the rate of the last 7 days';
  const shown = days >= 10 ? counted(Math.floor(days), 'day') : `${days} days`;
  return `lasts about ${shown} at the rate of the last 7 days`;
}

/** Warns of a low or empty balance; null if the balance suffices. */
export function balanceWarning({ available }: WalletAnswer, { days, perDay }: Runway, mayBook: boolean): MaybeHtml {
  const action = mayBook
    ? html`<a href="/portal/wallet">Add credit</a>.`
    : html`Ask the operator of this gateway for credit.`;
  if (pico(available) <= 0n) {
    return notice('bad', html`The balance is used up. Requests return 402 until credit is added. ${action}`);
  }
  if (days === null || days >= lowDays) return null;
  return notice(
    'bad',
    html`The balance is low: ${usd(available)} lasts about ${days} days at the rate of the last 7 days
    (${usd(perDay ?? '0')} per day). At zero, requests return 402. ${action}`,
  );
}
