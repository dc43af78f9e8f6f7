import {
  filterForm,
  html,
  type Html,
  type MaybeHtml,
  problemOf,
  queryOf,
  type Refusal,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { momentIn } from './widgets.ts';

/** The time window of a report: a month, or a range of days, in a time zone. */

export interface Asked {
  readonly month: string;
  readonly from: string;
  readonly to: string;
  readonly tz: string;
  readonly org: string;
}

/** The window that the API reports: ISO times and an IANA time zone. */
interface Shown {
  readonly from: string;
  readonly to: string;
  readonly tz: string;
}

/** Reads the window from the page's URL. The default is the current month. */
export function askedWindow({ context }: Visit, nowMs: number): Asked {
  const text = (name: string): string => queryOf(context, name).trim();
  const [from, to, month] = [text('from'), text('to'), text('month')];
  const more = { tz: text('tz'), org: text('org') };
  // The form was shown with days, so the visitor has just chosen the month.
  const isMonth = month !== '' && text('shown') === 'days';
  if (!isMonth && (from !== '' || to !== '')) return { from, to, month: '', ...more };
  const now = new Date(nowMs).toISOString().slice(0, 'YYYY-MM'.length);
  return { from: '', to: '', month: month === '' ? now : month, ...more };
}

/** Returns the window as query parameters of the API. */
export function windowQuery({ month, from, to, tz, org }: Asked): Readonly<Record<string, string>> {
  return { month, from, to, tz, org };
}

/**
 * Describes the window in its own time zone, not the reader's, because the report's days and months are in that zone.
 */
export function windowText({ from, to, tz }: Shown, more: MaybeHtml = null): Html {
  return html`${momentIn(from, tz)} until ${momentIn(to, tz)}${more}. Days and times are in ${tz}.`;
}

const zones = Intl.supportedValuesOf('timeZone');

interface WindowField {
  readonly name: 'month' | 'from' | 'to' | 'tz';
  readonly label: string;
  readonly type: 'month' | 'date' | 'text';
  /** Names of the fields that no longer apply when this field changes. */
  readonly instead?: string;
}

const fields: readonly WindowField[] = [
  { name: 'month', label: 'Month', type: 'month', instead: 'from to' },
  { name: 'from', label: 'From', type: 'date', instead: 'month' },
  { name: 'to', label: 'To (exclusive)', type: 'date', instead: 'month' },
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
