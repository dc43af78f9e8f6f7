import { uuidv7 } from '#base/id.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { RunnerAnswer } from '#edge/contract/runs.ts';
import {
  type AreaOptions,
  describedBy,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notes,
  notice,
  onceOf,
  pathWith,
  problemOf,
  type Refusal,
  refused,
  time,
  timeIn,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Widgets that the platform's pages share. */

/** Formats an ISO time. Returns `none` for null. */
export function moment(iso: string | null, none = 'never'): Html {
  return iso === null ? html`<span class="quiet">${none}</span>` : time(Date.parse(iso));
}

/** Formats an ISO time in a zone that the page names: see `timeIn`. */
export function momentIn(iso: string | null, zone: string, none = 'never'): Html {
  return iso === null ? html`<span class="quiet">${none}</span>` : timeIn(Date.parse(iso), zone);
}

/** Formats hours: "12.5 h", "1,204.25 h". */
export function hoursText(value: number): string {
  return `${value.toLocaleString('en-US', { maximumFractionDigits: 2 })} h`;
}

/** Renders a field for a secret, which is shown neither while it is typed nor afterwards. */
export function secretField({
  name,
  label,
  hint = null,
  refusal,
  isRequired = false,
}: Omit<AreaOptions, 'value'>): Html {
  const problem = problemOf(refusal, name, label);
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <input
      type="password"
      id="${name}"
      name="${name}"
      autocomplete="new-password"
      ${isRequired ? html`required` : null}
      ${describedBy(name, hint, problem)}
      ${problem === null ? null : html`aria-invalid="true"`}
    />
    ${notes(name, hint, problem)}
  </div>`;
}

export interface Option {
  readonly value: string;
  readonly label: string;
  readonly isDisabled?: boolean;
}

export interface ChooserOptions {
  readonly name: string;
  readonly label: string;
  readonly options: readonly Option[];
  readonly chosen: string;
  readonly hint?: MaybeHtml;
  readonly problem?: string | null;
}

/** Renders a select field with its hint and problem. */
export function chooser({ name, label, options, chosen, hint = null, problem = null }: ChooserOptions): Html {
  return html`<div class="field">
    <label for="${name}">${label}</label>
    <select
      id="${name}"
      name="${name}"
      ${describedBy(name, hint, problem)}
      ${problem === null ? null : html`aria-invalid="true"`}
    >
      ${options.map(
        ({ value, label: text, isDisabled = false }) =>
          html`<option
            value="${value}"
            ${value === chosen ? html`selected` : null}
            ${isDisabled ? html`disabled` : null}
          >
            ${text}
          </option>`,
      )}
    </select>
    ${notes(name, hint, problem)}
  </div>`;
}

/** Links to the pages of a list. Returns null if the list has one page. */
export function pager<T>(
  path: string,
  query: Readonly<Record<string, string>>,
  { pagination: { page, pages } }: PageAnswer<T>,
  name = 'page',
): MaybeHtml {
  if (pages <= 1) return null;
  const link = (to: number, text: string): MaybeHtml =>
    to < 1 || to > pages
      ? null
      : html`<a class="button" href="${pathWith(path, { ...query, [name]: to })}">${text}</a>`;
  return html`<nav class="pager buttons" aria-label="Pages of the list">
    ${link(page - 1, 'Previous')} ${link(page + 1, 'Next')} <span class="quiet">Page ${page} of ${pages}</span>
  </nav>`;
}

/** Returns a page number of a query in the API's format; 1 for anything else. */
export function pageNumber(text: string): string {
  return /^[1-9]\d{0,8}$/.test(text) ? text : '1';
}

/** Identifies one rendering of a form, so that a form that is sent twice is recognized. */
export const onceField = (): Html => html`<input type="hidden" name="once" value="${uuidv7()}" />`;

/** Idempotency header for a form, so that the API runs a form once. Empty if the form has no identifier. */
export const onceHeader = (form: Form, body: object = {}): Readonly<Record<string, string>> =>
  form.text('once') === '' ? {} : { 'idempotency-key': onceOf(form.text('once'), body) };

export interface ConfirmOptions {
  readonly action: string;
  readonly body: MaybeHtml;
  readonly button: string;
  readonly back: string;
  readonly refusal: Refusal | null;
}

/** Asks for confirmation of an irreversible action: the effects, then the button. */
export function confirmForm(visit: Visit, { action, body, button, back, refusal }: ConfirmOptions): Html {
  return html`<div class="confirm">
    ${refused(refusal)} ${body}
    <form method="post" action="${action}">
      ${formToken(visit)} ${onceField()}
      <p class="buttons"><button class="danger">${button}</button> <a href="${back}">Cancel</a></p>
    </form>
  </div>`;
}

/** Renders a form with one button. */
export function actionButton(visit: Visit, action: string, text: string, kind: 'primary' | 'danger' | '' = ''): Html {
  return html`<form method="post" action="${action}">
    ${formToken(visit)}${onceField()}<button class="${kind}">${text}</button>
  </form>`;
}

export interface Fact {
  readonly term: string;
  readonly text: MaybeHtml;
}

export function facts(list: readonly (Fact | null)[]): Html {
  return html`<dl class="facts">
    ${list.map((fact) =>
      fact === null
        ? html``
        : html`<dt>${fact.term}</dt>
            <dd>${fact.text}</dd>`,
    )}
  </dl>`;
}

/**
 * Explains why no stack can be applied. Returns null if stacks can be applied, or if the visitor may not apply them.
 */
export async function readRunnerProblem({ get, may }: Visit): Promise<MaybeHtml> {
  if (!may('runs')) return null;
  const { available, problem } = await get<RunnerAnswer>('/v1/runner');
  if (available) return null;
  return notice(
    'bad',
    html`<p>
      <strong>Stacks cannot be applied:</strong> ${problem}. Everything else works. Once this is fixed, you can apply
      stacks immediately.
    </p>`,
  );
}
