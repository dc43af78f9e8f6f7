import { html, type Html, type MaybeHtml } from './html.ts';
import type { Column } from './ui.ts';
import { pathWith } from './visit.ts';

/** Lists that are sorted and paged by their address. */

export type Query = Readonly<Record<string, string | number | null>>;

export interface SortedList<Field extends string> {
  readonly path: string;
  /** What narrows the list beside its sort; kept in every link. */
  readonly query: Query;
  /** As the API takes it: `-name` is descending. */
  readonly sort: Field | `-${Field}`;
}

/** One of the sorts that a list has, either way; the first where it is none of them. */
export function sortOf<Field extends string>(
  text: string,
  fields: readonly Field[],
  standard: Field | `-${Field}`,
): Field | `-${Field}` {
  return fields.flatMap((field) => [field, `-${field}` as const]).find((one) => one === text) ?? standard;
}

/** The heading of a column that sorts by it: once more, the other way. */
export function sortColumn<Field extends string>(
  { path, query, sort }: SortedList<Field>,
  field: Field,
  title: string,
  isNumber = false,
): Column {
  const isBy = sort === field || sort === `-${field}`;
  const isDescending = sort === `-${field}`;
  // Numbers are looked at from the largest on.
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

/** Links to the pages before and after; nothing where all is on one. */
export function pager(path: string, query: Query, { page, pages, total }: Pagination): MaybeHtml {
  if (pages <= 1) return null;
  const to = (wanted: number, text: string): MaybeHtml =>
    wanted < 1 || wanted > pages
      ? null
      : html`<a class="button" href="${pathWith(path, { ...query, page: wanted })}">${text}</a>`;
  return html`<nav class="buttons" aria-label="Pages of this list">
    ${to(page - 1, 'Before')}
    <span class="quiet">Page ${page} of ${pages}, ${total} in all</span> ${to(page + 1, 'Next')}
  </nav>`;
}

/** What is known of one thing, beside each other. */
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
