import { html, type Html, type MaybeHtml } from './html.ts';
import type { Refusal, Visit } from './visit.ts';

/** The parts that pages are made of. */

/** What the server knows a form by as its own, and the organization that its page is about. */
export function formToken({ formToken: token, viewed }: Visit): Html {
  const about = viewed === null ? null : html`<input type="hidden" name="viewed" value="${viewed.id}" />`;
  return html`<input type="hidden" name="form_token" value="${token}" />${about}`;
}

export function badge(kind: 'good' | 'busy' | 'bad' | 'plain', text: string): Html {
  return html`<span class="badge ${kind}">${text}</span>`;
}

export function notice(kind: 'good' | 'bad' | 'plain', body: MaybeHtml): Html {
  return html`<div class="notice ${kind}" role="${kind === 'bad' ? 'alert' : 'status'}">${body}</div>`;
}

/** What stands in the place of a list that has nothing yet. */
export function empty(title: string, body: MaybeHtml): Html {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    <p>${body}</p>
  </div>`;
}

/** Text that is made to be copied; without the script it is selected by hand. */
export function copyable(id: string, text: string, label = 'Copy'): Html {
  return html`<div class="code">
    <pre id="${id}" tabindex="0">${text}</pre>
    <button type="button" class="copy" data-copy="${id}" hidden>${label}</button>
  </div>`;
}

export interface Column {
  readonly title: MaybeHtml;
  /** The title as text, where it is a link. */
  readonly label?: string;
  /** How the rows are sorted by it; absent: they are not. */
  readonly sorted?: 'ascending' | 'descending';
  readonly isNumber?: boolean;
  /** Of sentences and of long names: on narrow screens it has a line of its own. */
  readonly isWide?: boolean;
}

export interface TableOptions {
  /** Said to who cannot see it. */
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly MaybeHtml[])[];
  readonly foot?: readonly MaybeHtml[];
}

export interface RecordsOptions extends Pick<TableOptions, 'caption' | 'rows'> {
  readonly columns: readonly string[];
}

/**
 * A table of few rows with long texts; on narrow screens each row stands as a block, a line for each cell. The roles are
 * said, since a table that is shown as blocks is none to who cannot see it.
 */
export function records({ caption, columns, rows }: RecordsOptions): Html {
  return html`<div class="table records" tabindex="0" role="region" aria-label="${caption}">
    <table role="table">
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((title) => html`<th role="columnheader" scope="col">${title}</th>`)}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row) =>
            html`<tr role="row">
              ${row.map((cell, index) => html`<td role="cell" data-title="${columns[index]}">${cell}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Names longer than this are broken within their column. */
const unbrokenCharsMax = 32;

/** A name as short as "gpu-1" stays on its line. */
const shortCharsMax = 12;

/** A text of any length: people and programs choose names without a space. */
function cellOf(cell: MaybeHtml, { isNumber = false }: Column): MaybeHtml {
  if (typeof cell !== 'string' || cell === '' || isNumber) return cell;
  if (cell.length > unbrokenCharsMax) return html`<span class="wrap">${cell}</span>`;
  return cell.length <= shortCharsMax ? html`<span class="unbroken">${cell}</span>` : cell;
}

const classOf = ({ isNumber = false, isWide = false }: Column): string =>
  [isNumber ? 'number' : '', isWide ? 'wide' : ''].join(' ').trim();

/**
 * A dense table; on narrow screens each row stands as a block, two cells a line, and nothing has to be scrolled to. What
 * it is sorted by stays above it. The roles are said for the reason that `records` has.
 */
export function table({ caption, columns, rows, foot }: TableOptions): Html {
  const isSortable = columns.some(({ label }) => label !== undefined);
  const sortOf = ({ sorted }: Column): MaybeHtml => (sorted === undefined ? null : html`aria-sort="${sorted}"`);
  const headOf = (column: Column): Html =>
    html`<th role="columnheader" scope="col" class="${classOf(column)}" ${sortOf(column)}>${column.title}</th>`;
  // No space of the template gets into a cell: one that holds nothing is empty.
  const cell = (value: MaybeHtml, column: Column): Html => {
    const attributes = html`class="${classOf(column)}" data-title="${column.label ?? column.title}"`;
    return html`<td role="cell" ${attributes}>${cellOf(value, column)}</td>`;
  };
  const rowOf = (row: readonly MaybeHtml[]): Html =>
    html`<tr role="row">
      ${row.map((value, index) => cell(value, columns[index] ?? { title: '' }))}
    </tr>`;
  return html`<div
    class="table records paired ${isSortable ? 'sortable' : ''}"
    tabindex="0"
    role="region"
    aria-label="${caption}"
  >
    <table role="table">
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map(headOf)}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(rowOf)}
      </tbody>
      ${
        foot === undefined
          ? null
          : html`<tfoot role="rowgroup">
              ${rowOf(foot)}
            </tfoot>`
      }
    </table>
  </div>`;
}

export interface Figure {
  readonly label: string;
  readonly value: MaybeHtml;
  readonly note?: MaybeHtml | undefined;
}

export function figures(list: readonly Figure[]): Html {
  return html`<dl class="figures">
    ${list.map(
      ({ label, value, note }) =>
        html`<div class="figure">
          <dt>${label}</dt>
          <dd>${value}</dd>
          ${note === undefined ? null : html`<dd class="quiet">${note}</dd>`}
        </div>`,
    )}
  </dl>`;
}

export interface FieldOptions {
  readonly name: string;
  /** Where a page has several forms with a field of this name; else it is the name. */
  readonly id?: string;
  readonly label: string;
  readonly value: string;
  readonly hint?: MaybeHtml;
  readonly refusal?: Refusal | null;
  readonly isRequired?: boolean;
  readonly type?: 'text' | 'email' | 'password';
  /** As browsers and password managers know fields: `username`, `current-password`. */
  readonly autocomplete?: string;
  readonly inputMode?: 'numeric' | 'decimal';
  readonly maxLength?: number;
  readonly placeholder?: string;
  /** Of the `datalist` that holds what may be meant. */
  readonly list?: string;
}

const problemOf = (refusal: Refusal | null | undefined, name: string): string | null =>
  refusal?.problems.get(name) ?? null;

const fieldDefaults = {
  hint: null,
  isRequired: false,
  type: 'text',
  autocomplete: 'off',
  maxLength: 1000,
  placeholder: '',
} as const;

/** A text field with what it is for, and what was wrong with it. */
export function field(options: FieldOptions): Html {
  const { name, label, value, hint, refusal, isRequired, type, autocomplete, maxLength, placeholder, ...more } = {
    ...fieldDefaults,
    ...options,
  };
  const { id = name, inputMode = type === 'email' ? 'email' : 'text', list } = more;
  const problem = problemOf(refusal, name);
  const described = [hint === null ? '' : `${id}-hint`, problem === null ? '' : `${id}-problem`].join(' ').trim();
  return html`<div class="field">
    <label for="${id}">${label}</label>
    <input
      type="${type}"
      id="${id}"
      name="${name}"
      value="${value}"
      maxlength="${maxLength}"
      inputmode="${inputMode}"
      placeholder="${placeholder}"
      autocomplete="${autocomplete}"
      ${list === undefined ? null : html`list="${list}"`}
      ${isRequired ? html`required` : null}
      ${described === '' ? null : html`aria-describedby="${described}"`}
      ${problem === null ? null : html`aria-invalid="true"`}
    />
    ${hint === null ? null : html`<p class="hint" id="${id}-hint">${hint}</p>`}
    ${problem === null ? null : html`<p class="problem" id="${id}-problem">${label} ${problem}</p>`}
  </div>`;
}

export interface Choice {
  readonly value: string;
  readonly label: string;
}

export function select(name: string, label: string, choices: readonly Choice[], chosen: string): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <select id="${name}" name="${name}">
      ${choices.map(({ value, label: text }) => html`<option value="${value}" ${value === chosen ? html`selected` : null}>${text}</option>`)}
    </select>
  </div>`;
}

export interface RadiosOptions {
  readonly name: string;
  readonly legend: string;
  readonly choices: readonly Choice[];
  readonly chosen: string;
  readonly hint: MaybeHtml;
}

export function radios({ name, legend, choices, chosen, hint }: RadiosOptions): Html {
  return html`<fieldset class="radios">
    <legend>${legend}</legend>
    <div class="segments">
      ${choices.map(
        ({ value, label }) =>
          html`<label
            ><input type="radio" name="${name}" value="${value}" ${value === chosen ? html`checked` : null} /><span
              >${label}</span
            ></label
          >`,
      )}
    </div>
    <p class="hint">${hint}</p>
  </fieldset>`;
}

export function checkbox(name: string, label: string, isChecked: boolean, hint: MaybeHtml): Html {
  return html`<div class="check">
    <input
      type="checkbox"
      id="${name}"
      name="${name}"
      value="yes"
      ${isChecked ? html`checked` : null}
      aria-describedby="${name}-hint"
    />
    <div>
      <label for="${name}">${label}</label>
      <p class="hint" id="${name}-hint">${hint}</p>
    </div>
  </div>`;
}

/** What the API says of its fields, under the names that a form has for them. */
export function renamed(refusal: Refusal, nameOf: (name: string) => string): Refusal {
  return { ...refusal, problems: new Map([...refusal.problems].map(([name, text]) => [nameOf(name), text])) };
}

/** The message of a refused form; problems of fields stand beside the fields. */
export function refused(refusal: Refusal | null): MaybeHtml {
  return refusal === null ? null : notice('bad', refusal.message);
}

/** Links to other views of the same list. */
export function tabs(
  label: string,
  list: readonly { readonly text: string; readonly href: string; readonly isHere: boolean }[],
): Html {
  return html`<nav class="tabs" aria-label="${label}">
    ${list.map(({ text, href, isHere }) => html`<a href="${href}" ${isHere ? html`aria-current="true"` : null}>${text}</a>`)}
  </nav>`;
}

/** Lists are read from the newest on; the way back is the browser's. */
export function older(href: string | null): MaybeHtml {
  return href === null ? null : html`<p class="pager"><a class="button" href="${href}">Older</a></p>`;
}
