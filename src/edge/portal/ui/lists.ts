import { html, type Html, type MaybeHtml } from './html.ts';
import type { Column } from './elements.ts';
import { pathWith } from './page-request.ts';

/** Lists with sorting and paging by URL. */

export type Query = Readonly<Record<string, string | number | null>>;

export interface SortedList<Field extends string> {
  readonly path: string;
  /** Other filters of the list; every link keeps them. */
  readonly query: Query;
  /** Sort order in the API's format: `-name` is descending. */
  readonly sort: Field | `-${Field}`;
}

/** Parses a sort order, ascending or descending. Returns the standard order for unknown texts. */
export function sortOf<Field extends string>(
  text: string,
  fields: readonly Field[],
  standard: Field | `-${Field}`,
): Field | `-${Field}` {
  return fields.flatMap((field) => [field, `-${field}` as const]).find((one) => one === text) ?? standard;
}

/** Returns a column heading that sorts by its column, and reverses the order on the next click. */
export function sortColumn<Field extends string>(
  { path, query, sort }: SortedList<Field>,
  field: Field,
  title: string,
  isNumber = false,
): Column {
  const isBy = sort === field || sort === `-${field}`;
  const isDescending = sort === `-${field}`;
  // The first click on a numeric column sorts the largest first.
  const isNextDescending = isBy ? !isDescending : isNumber;
  const next = isNextDescending ? `-${field}` : field;
  const mark = isBy ? (isDescending ? ' ↓' : ' ↑') : '';
  return {
    title: html`<a class="sort" href="${pathWith(path, { ...query, sort: next })}"
      >${title}${mark === '' ? null : html`<span aria-hidden="true">${mark}</span>`}</a
    >`,
    label: title,
    isNumber,
    ...(isBy && { sorted: isDescending ? ('descending' as const) : ('ascending' as const) }),
  };
}

export interface Pagination {
  readonly page: number;
  readonly pages: number;
  readonly total: number;
}

/** Links to the previous and next page. Returns null if the list has one page. */
export function pager(path: string, query: Query, { page, pages, total }: Pagination): MaybeHtml {
  if (pages <= 1) return null;
  const to = (wanted: number, text: string): MaybeHtml =>
    wanted < 1 || wanted > pages
      ? null
      : html`<a class="button" href="${pathWith(path, { ...query, page: wanted })}">${text}</a>`;
  return html`<nav class="buttons" aria-label="Pages of this list">
    ${to(page - 1, 'Previous')}
    <span class="quiet">Page ${page} of ${pages}, ${total} in total</span> ${to(page + 1, 'Next')}
  </nav>`;
}

/** Formats names and values as a description list. */
export function facts(list: readonly (readonly [string, MaybeHtml])[]): Html {
  return html`<dl class="facts">
    ${list.map(
      ([name, value]) =>
        html`<dt>${name}</dt>
          <dd>${value}</dd>`,
    )}
  </dl>`;
}

export function section(id: string, title: string, body: MaybeHtml): Html {
  return html`<section aria-labelledby="${id}-title">
    <h2 id="${id}-title">${title}</h2>
    ${body}
  </section>`;
}

/** Renders a filter form for a page. It applies on change with a script, and by its button without one. */
export function filterForm(path: string, fields: MaybeHtml, button = 'Show'): Html {
  return html`<form
    class="filters"
    method="get"
    action="${path}"
    hx-get="${path}"
    hx-target="#results"
    hx-select="#results"
    hx-swap="outerHTML"
    hx-sync="this:replace"
    hx-trigger="change, submit"
    hx-push-url="true"
  >
    ${fields}
    <p class="buttons"><button>${button}</button></p>
  </form>`;
}
