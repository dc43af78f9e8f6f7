import type { AmountAnswer } from '#edge/contract/costs.ts';

/** Returns "EUR 1,204.50", with the digits as the API sends them. */
export function amountText({ currency, amount }: AmountAnswer): string {
  const isNegative = amount.startsWith('-');
  const [whole = '0', fraction = ''] = (isNegative ? amount.slice(1) : amount).split('.');
  const digits = fraction === '' ? '' : `.${fraction}`;
  return `${isNegative ? '−' : ''}${currency} ${BigInt(whole).toLocaleString('en-US')}${digits}`;
}

/** Lists amounts by currency. Amounts of different currencies are never added. */
export function amountsText(amounts: readonly AmountAnswer[]): string {
  return amounts.length === 0 ? 'no costs' : amounts.map(amountText).join(' + ');
}
