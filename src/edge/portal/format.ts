import { html, type Html } from './html.ts';

/** How numbers, money and times are written on pages. */

const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export function count(value: number): string {
  return grouped.format(value);
}

/** "1 request", "12 requests". */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** An exact decimal of the API in USD, every digit of it: "$0.00000042", "−$2.50". */
export function usd(decimal: string): string {
  const isNegative = decimal.startsWith('-');
  const [whole = '0', fraction = ''] = (isNegative ? decimal.slice(1) : decimal).split('.');
  const digits = fraction.padEnd(2, '0');
  return `${isNegative ? '−' : ''}$${BigInt(whole).toLocaleString('en-US')}.${digits}`;
}

export function milliseconds(value: number): string {
  if (value < 1000) return `${value} ms`;
  return value < 60_000 ? `${(value / 1000).toFixed(2)} s` : `${(value / 60_000).toFixed(1)} min`;
}

const utcText = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

/** A moment: UTC as it is sent, the reader's own zone once the script has run, UTC on hover. */
export function time(ms: number): Html {
  const shown = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${shown}">${shown.slice(0, 16)} UTC</time>`;
}

/** The same with its seconds, for what is looked up in a log or waited for. */
export function timeToSecond(ms: number): Html {
  const shown = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${shown}" data-seconds>${shown}</time>`;
}

/** "2026-11-01 00:00" in a zone, of which the page says in words which it is; UTC on hover. @param zone of the IANA list */
export function timeIn(ms: number, zone: string): Html {
  const text = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short', timeStyle: 'short' }).format(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${utcText(ms)}" data-local>${text}</time>`;
}

/** "2026-11-01 00:00:00" of UTC, for pages that filter by days of UTC and say so; the reader's own zone on hover. */
export function timeInUtc(ms: number): Html {
  const text = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${text}" data-utc>${text.slice(0, 19)}</time>`;
}

/** `time` of the API's seconds; `none` where there is no such moment. */
export function timeOf(seconds: number | null, none: string): Html {
  return seconds === null ? html`<span class="quiet">${none}</span>` : time(seconds * 1000);
}
