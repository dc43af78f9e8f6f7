import { z } from '@hono/zod-openapi';
import { type IdPrefix, parseId } from '#base/id.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import { ValidationError } from '#edge/http/http.ts';
import { organizationQuery } from './schemas.ts';

/** Query of lists in OpenAI's paging: newest first, and `after` is the last item of the previous page. */

export const cursorListQuery = {
  ...organizationQuery,
  limit: z
    .string()
    .regex(/^[1-9]\d{0,2}$/, 'must be a whole number of 1 or more')
    .transform(Number)
    .refine((limit) => limit <= 100, 'must be at most 100')
    .default(20)
    .openapi({ type: 'integer', minimum: 1, maximum: 100, default: 20, description: 'Items per page' }),
  after: z.string().optional().openapi({ description: '`last_id` of the previous page' }),
};

/** Query parameter of lists that can also be read from the oldest item on. */
export const creationOrder = z
  .enum(['asc', 'desc'])
  .default('desc')
  .openapi({ description: 'Order by creation; `desc` is newest first' });

export function toCursorPage<T extends { readonly id: string }>(data: T[], more: boolean): CursorPageAnswer<T> {
  const [first, last] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: 'list', data, first_id: first, last_id: last, has_more: more };
}

const notLastId = (): ValidationError =>
  new ValidationError([{ field: 'after', message: 'must be the last_id of the previous page' }]);

/** Returns the UUID in `after`; null for the first page. @throws ValidationError */
export function readAfter(prefix: IdPrefix, after: string | undefined): string | null {
  if (after === undefined) return null;
  const id = parseId(prefix, after);
  if (id === null) throw notLastId();
  return id;
}

export interface Numbered<T> {
  readonly items: readonly T[];
  readonly total: number;
}

/** Items per read of a list with numbered pages. */
export const numberedLimit = 100;

/**
 * Reads a page after an item from a list with numbered pages, `numberedLimit` items at a time. Items that appear or
 * disappear between two reads shift the others; no item is returned twice.
 * @param after a UUID; null for the first page
 * @throws ValidationError if the list has no such item
 */
export async function readNumbered<T extends { readonly id: string }>(
  read: (page: number) => Promise<Numbered<T>>,
  {
    after,
    limit,
    isWanted,
  }: {
    readonly after: string | null;
    readonly limit: number;
    readonly isWanted: (item: T) => boolean;
  },
): Promise<{ readonly items: readonly T[]; readonly more: boolean }> {
  const found = new Map<string, T>();
  let isBehind = after === null;
  for (let page = 1; ; page += 1) {
    const { items, total } = await read(page);
    for (const item of items) {
      if (isBehind && isWanted(item)) found.set(item.id, item);
      isBehind ||= item.id === after;
    }
    if (found.size > limit || items.length === 0 || page * numberedLimit >= total) break;
  }
  if (!isBehind) throw notLastId();
  const all = [...found.values()];
  return { items: all.slice(0, limit), more: all.length > limit };
}
