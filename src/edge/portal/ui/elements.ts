import { html, type Html, type MaybeHtml } from './html.ts';
import type { Refusal, Visit } from './page-request.ts';

/** Building blocks of pages. */

/** Hidden fields of a form: its token, and the organization that its page shows. */
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

/** Renders the empty state of a list. */
export function empty(title: string, body: MaybeHtml): Html {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    <p>${body}</p>
  </div>`;
}

/** Renders text with a copy button. Without the script, readers select the text by hand. */
export function copyable(id: string, text: string, label = 'Copy'): Html {
  return html`<div class="code">
    <pre id="${id}" tabindex="0">${text}</pre>
    <button type="button" class="copy" data-copy="${id}" hidden>${label}</button>
  </div>`;
}

export interface Column {
  readonly title: MaybeHtml;
  /** The title as text, if `title` is a link. */
  readonly label?: string;
  /** The current sort order by this column; absent if the rows are not sorted by it. */
  readonly sorted?: 'ascending' | 'descending';
  readonly isNumber?: boolean;
  /** True for columns with sentences or long names, which get their own line on narrow screens. */
  readonly isWide?: boolean;
}

export interface TableOptions {
  /** Text alternative for screen readers. */
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly MaybeHtml[])[];
  readonly foot?: readonly MaybeHtml[];
  /**
   * Makes the table a list that scripts search in place: its rows are the whole list, which is also sorted in place, or
   * a part of it. The page needs the script `assets.lists`.
   */
  readonly list?: 'whole' | 'part';
}

export interface RecordsOptions extends Pick<TableOptions, 'caption' | 'rows'> {
  readonly columns: readonly string[];
}

/**
 * Renders a table of few rows with long texts. On narrow screens each row becomes a block with one line per cell. Roles
 * are explicit, because screen readers do not recognize a table that is displayed as blocks.
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

/** Characters above which names may be broken within their column. */
const unbrokenCharsMax = 32;

/** Characters up to which a name, such as "gpu-1", stays on one line. */
const shortCharsMax = 12;

/** Formats a text of any length: names may be long and without a space. */
function cellOf(cell: MaybeHtml, { isNumber = false }: Column): MaybeHtml {
  if (typeof cell !== 'string' || cell === '' || isNumber) return cell;
  if (cell.length > unbrokenCharsMax) return html`<span class="wrap">${cell}</span>`;
  return cell.length <= shortCharsMax ? html`<span class="unbroken">${cell}</span>` : cell;
}

const classOf = ({ isNumber = false, isWide = false }: Column): string =>
  [isNumber ? 'number' : '', isWide ? 'wide' : ''].join(' ').trim();

/**
 * Renders a dense table. On narrow screens each row becomes a block with two cells per line, without scrolling
 * sideways; the sort links stay above it. Roles are explicit for the same reason as in `records`.
 */
export function table({ caption, columns, rows, foot, list }: TableOptions): Html {
  const isSortable = columns.some(({ label }) => label !== undefined);
  const sortOf = ({ sorted }: Column): MaybeHtml => (sorted === undefined ? null : html`aria-sort="${sorted}"`);
  const headOf = (column: Column): Html =>
    html`<th role="columnheader" scope="col" class="${classOf(column)}" ${sortOf(column)}>${column.title}</th>`;
  // The template adds no spaces to a cell, so that a cell without content is empty.
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
    ${list === undefined ? null : html`data-list="${list}"`}
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
  /** The element's id, if several forms of a page have a field of this name. The default is the name. */
  readonly id?: string;
  readonly label: string;
  readonly value: string;
  readonly hint?: MaybeHtml;
  readonly refusal?: Refusal | null;
  readonly isRequired?: boolean;
  readonly type?: 'date' | 'text' | 'email' | 'password';
  /** The autocomplete token for browsers and password managers: `username`, `current-password`. */
  readonly autocomplete?: string;
  readonly inputMode?: 'numeric' | 'decimal';
  readonly maxLength?: number;
  readonly placeholder?: string;
  /** Id of the `datalist` with suggestions. */
  readonly list?: string;
}

/** Names of the fields that show their problem, by refusal: a form's notice does not repeat these. */
const shownProblems = new WeakMap<Refusal, Set<string>>();

/**
 * Returns the problem of a field that is about to show it, as a sentence; null if it has none. A problem of a part of
 * the field ("models.2", "labels.team") is one of the field.
 */
export function problemOf(refusal: Refusal | null | undefined, name: string, label: string): string | null {
  if (refusal === null || refusal === undefined) return null;
  const found = [...refusal.problems].filter(([one]) => one === name || one.startsWith(`${name}.`));
  const [first] = found;
  if (first === undefined) return null;
  const shown = shownProblems.get(refusal) ?? new Set();
  for (const [one] of found) shown.add(one);
  shownProblems.set(refusal, shown);
  return `${label} ${first[1]}`;
}

export function describedBy(name: string, hint: MaybeHtml, problem: string | null): MaybeHtml {
  const ids = [hint === null ? '' : `${name}-hint`, problem === null ? '' : `${name}-problem`].join(' ').trim();
  return ids === '' ? null : html`aria-describedby="${ids}"`;
}

/** Renders the hint and the problem below a field. */
export function notes(name: string, hint: MaybeHtml, problem: string | null): Html {
  return html`${hint === null ? null : html`<p class="hint" id="${name}-hint">${hint}</p>`}
  ${problem === null ? null : html`<p class="problem" id="${name}-problem">${problem}</p>`}`;
}

const fieldDefaults = {
  hint: null,
  isRequired: false,
  type: 'text',
  autocomplete: 'off',
  maxLength: 1000,
  placeholder: '',
} as const;

/** Renders a text field with its hint and problem. */
export function field(options: FieldOptions): Html {
  const { name, label, value, hint, refusal, isRequired, type, autocomplete, maxLength, placeholder, ...more } = {
    ...fieldDefaults,
    ...options,
  };
  const { id = name, inputMode = type === 'email' ? 'email' : 'text', list } = more;
  const problem = problemOf(refusal, name, label);
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
      ${describedBy(id, hint, problem)}
      ${problem === null ? null : html`aria-invalid="true"`}
    />
    ${notes(id, hint, problem)}
  </div>`;
}

export interface AreaOptions extends Pick<FieldOptions, 'name' | 'label' | 'value' | 'hint' | 'refusal'> {
  readonly rows?: number;
  readonly placeholder?: string;
  readonly isRequired?: boolean;
}

/** Renders a text area. */
export function area({ name, label, value, hint = null, refusal, rows = 3, ...more }: AreaOptions): Html {
  const problem = problemOf(refusal, name, label);
  const { placeholder, isRequired = false } = more;
  // Browsers drop the line break after the opening tag.
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <textarea
      id="${name}"
      name="${name}"
      rows="${rows}"
      spellcheck="false"
      autocomplete="off"
      ${placeholder === undefined ? null : html`placeholder="${placeholder}"`}
      ${isRequired ? html`required` : null}
      ${describedBy(name, hint, problem)}
      ${problem === null ? null : html`aria-invalid="true"`}
    >
${value}</textarea>
    ${notes(name, hint, problem)}
  </div>`;
}

/** Renders a field for model ids, one on each line; `known` are named as examples. */
export function modelsField(value: string, known: readonly string[], refusal: Refusal | null): Html {
  const available = known.length === 0 ? 'none yet' : known.join(', ');
  const hint = `One model id per line. Empty allows all models. Available: ${available}.`;
  return area({ name: 'models', label: 'Allowed models', value, hint, refusal });
}

/** Returns the models of a `modelsField`; null, which allows all, if it is empty. */
export function modelsOf(text: string): readonly string[] | null {
  const models = text
    .split(/[\r\n,]/)
    .map((id) => id.trim())
    .filter((id) => id !== '');
  return models.length === 0 ? null : models;
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

/** Renames the API's fields to the form's fields. */
export function renamed(refusal: Refusal, nameOf: (name: string) => string): Refusal {
  return { ...refusal, problems: new Map([...refusal.problems].map(([name, text]) => [nameOf(name), text])) };
}

/**
 * Says why a form was rejected. Problems that a field of the page shows are not repeated: the fields of a page are
 * rendered after this notice, so it is rendered when they are.
 */
export function refused(refusal: Refusal | null): MaybeHtml {
  return refusal === null ? null : Promise.resolve().then(() => notice('bad', noticeOfRefusal(refusal)));
}

function noticeOfRefusal(refusal: Refusal): string | Html {
  const { problems, message } = refusal;
  const shown = shownProblems.get(refusal)?.size ?? 0;
  if (shown === 0) return message;
  const marked = shown === 1 ? 'Not saved: see the marked field.' : 'Not saved: see the marked fields.';
  const others = [...problems].filter(([name]) => shownProblems.get(refusal)?.has(name) !== true);
  return [marked, ...others.map(([name, text]) => `${name} ${text}.`)].join(' ');
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

/** Links to older entries. Lists start with the newest; the browser's back button leads back. */
export function older(href: string | null): MaybeHtml {
  return href === null ? null : html`<p class="pager"><a class="button" href="${href}">Older</a></p>`;
}
