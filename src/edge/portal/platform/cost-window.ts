import type { Html, MaybeHtml } from '#edge/portal/html.ts';
import { html } from '#edge/portal/html.ts';
import type { Refusal, Visit } from '#edge/portal/visit.ts';
import { queryOf } from '#edge/portal/visit.ts';
import { filterForm, momentIn, problemOf } from './widgets.ts';

/** Which time a report is about: a month, or a range of days, in a time zone. */

export interface Asked {
  readonly month: string;
  readonly from: string;
  readonly to: string;
  readonly tz: string;
  readonly org: string;
}

/** The window that a report is about, as the API says it: ISO times and a zone of the IANA list. */
interface Shown {
  readonly from: string;
  readonly to: string;
  readonly tz: string;
}

/** What the address of a page asks for; the month that is now where it says nothing. */
export function askedWindow({ context }: Visit, nowMs: number): Asked {
  const text = (name: string): string => queryOf(context, name).trim();
  const [from, to, month] = [text('from'), text('to'), text('month')];
  const more = { tz: text('tz'), org: text('org') };
  // The form began with days: the month beside them is new.
  const isMonth = month !== '' && text('shown') === 'days';
  if (!isMonth && (from !== '' || to !== '')) return { from, to, month: '', ...more };
  const now = new Date(nowMs).toISOString().slice(0, 'YYYY-MM'.length);
  return { from: '', to: '', month: month === '' ? now : month, ...more };
}

/** As the API takes it. */
export function windowQuery({ month, from, to, tz, org }: Asked): Readonly<Record<string, string>> {
  return { month, from, to, tz, org };
}

/** Of times on a page: those of the window, whatever zone its reader is in, since its days and months are of it. */
export function windowText({ from, to, tz }: Shown, more: MaybeHtml = null): Html {
  return html`${momentIn(from, tz)} until ${momentIn(to, tz)}${more}. Days and times are of ${tz}.`;
}

const zones = Intl.supportedValuesOf('timeZone');

interface WindowField {
  readonly name: 'month' | 'from' | 'to' | 'tz';
  readonly label: string;
  readonly type: 'month' | 'date' | 'text';
  /** The fields that do not count once this one is changed. */
  readonly instead?: string;
}

const fields: readonly WindowField[] = [
  { name: 'month', label: 'Month', type: 'month', instead: 'from to' },
  { name: 'from', label: 'Or from', type: 'date', instead: 'month' },
  { name: 'to', label: 'until before', type: 'date', instead: 'month' },
  { name: 'tz', label: 'Time zone', type: 'text' },
];

function input({ name, label, type, instead }: WindowField, value: string, refusal: Refusal | null): Html {
  const problem = problemOf(refusal, name, label);
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input
      type="${type}"
      id="${name}"
      name="${name}"
      value="${value}"
      ${instead === undefined ? null : html`data-instead="${instead}"`}
      ${name === 'tz' ? html`list="zones" placeholder="UTC" autocomplete="off"` : null}
      ${problem === null ? null : html`aria-invalid="true" aria-describedby="${name}-problem"`}
    />
    ${problem === null ? null : html`<p class="problem" id="${name}-problem">${problem}</p>`}
  </div>`;
}

export function windowForm(path: string, asked: Asked, refusal: Refusal | null, more: MaybeHtml = null): Html {
  const shown = html`<input type="hidden" name="shown" value="${asked.month === '' ? 'days' : 'month'}" />`;
  return html`${filterForm(path, [html`${fields.map((one) => input(one, asked[one.name], refusal))}${shown}${more}`])}
    <datalist id="zones">${zones.map((zone) => html`<option value="${zone}"></option>`)}</datalist>`;
}
