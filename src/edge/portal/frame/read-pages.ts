import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer, PageAnswer } from '#edge/contract/lists.ts';
import { pathWith, type Visit } from '#edge/portal/ui/ui.ts';

/** Reads whole lists of the API, up to 1000 entries in the API's order, for forms and tables of names. */

const pageSize = 100;
const pagesMax = 10;
/** Page size and limit for keys. Organizations may have many keys, and pages look up their names. */
const keysOnce = 500;
const keysMax = 10_000;

type Query = Readonly<Record<string, string | undefined>>;

/** Reads a list with page numbers. @throws RefusedError */
export async function readPages<T>({ get }: Visit, path: string, query: Query = {}): Promise<readonly T[]> {
  const read = (page: number): Promise<PageAnswer<T>> => get(pathWith(path, { ...query, page, limit: pageSize }));
  const first = await read(1);
  const others = Math.min(first.pagination.pages, pagesMax) - 1;
  const rest = await Promise.all(Array.from({ length: Math.max(0, others) }, (_, index) => read(index + 2)));
  return [first, ...rest].flatMap(({ data }) => data);
}

/** Reads a list with a cursor. @throws RefusedError */
export async function readOnward<T>(
  { get }: Pick<Visit, 'get'>,
  path: string,
  query: Query = {},
  { limit, max }: { readonly limit: number; readonly max: number } = { limit: pageSize, max: pageSize * pagesMax },
): Promise<readonly T[]> {
  const all: T[] = [];
  let cursor: string | null = null;
  do {
    const list: ListAnswer<T> = await get(pathWith(path, { ...query, limit, cursor }));
    all.push(...list.data);
    cursor = list.next_cursor;
  } while (cursor !== null && all.length < max);
  return all;
}

/** Reads keys with the API's filters, newest first, up to 10 000. @throws RefusedError */
export const readKeys = (visit: Pick<Visit, 'get'>, query: Query = {}): Promise<readonly KeyAnswer[]> =>
  readOnward<KeyAnswer>(visit, '/v1/keys', query, { limit: keysOnce, max: keysMax });
