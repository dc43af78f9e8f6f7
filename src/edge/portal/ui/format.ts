import { html, type Html } from './html.ts';

/** Formats numbers, money and times for pages. */

let grouped: Intl.NumberFormat | null = null;

/** Groups digits: "12,345". The formatter is made at the first call, since it loads the locale's data. */
export function count(value: number): string {
  grouped ??= new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
  return grouped.format(value);
}

/** Returns "1 request" or "12 requests". */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Formats an exact decimal of the API in USD with all its digits: "$0.00000042", "−$2.50". */
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

/** Formats a time: sent in UTC, converted to the reader's zone by the script, with UTC on hover. */
export function time(ms: number): Html {
  const shown = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${shown}">${shown.slice(0, 16)} UTC</time>`;
}

/** Formats a time with seconds, for times that readers look up in a log or wait for. */
export function timeToSecond(ms: number): Html {
  const shown = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${shown}" data-seconds>${shown}</time>`;
}

/** Formats a time in a zone: "2026-11-01 00:00", with UTC on hover. The page names the zone. @param zone IANA name */
export function timeIn(ms: number, zone: string): Html {
  const text = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short', timeStyle: 'short' }).format(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${utcText(ms)}" data-local>${text}</time>`;
}

/**
 * Formats a time in UTC: "2026-11-01 00:00:00", with the reader's zone on hover. For pages that filter by UTC days and
 * say so.
 */
export function timeInUtc(ms: number): Html {
  const text = utcText(ms);
  return html`<time datetime="${new Date(ms).toISOString()}" title="${text}" data-utc>${text.slice(0, 19)}</time>`;
}

/** Formats a time in Unix seconds, as the API sends it. Returns `none` for null. */
export function timeOf(seconds: number | null, none: string): Html {
  return seconds === null ? html`<span class="quiet">${none}</span>` : time(seconds * 1000);
}
