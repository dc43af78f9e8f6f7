import { z } from 'zod';

/**
 * Forms of lists. The `name` of a list is its name in the OpenAPI document; readers of a list, such as the command line,
 * give none.
 */

function named<T extends z.ZodType>(schema: T, name: string | undefined): T {
  return name === undefined ? schema : schema.meta({ id: name });
}

/** Returns the schema of a list with cursors, newest first. */
export function listOf<T extends z.ZodType>(item: T, name?: string) {
  return named(
    z.object({
      object: z.literal('list'),
      data: z.array(item),
      has_more: z.boolean(),
      next_cursor: z.string().nullable().meta({ description: '`cursor` of the next page; null on the last page' }),
    }),
    name,
  );
}

/** A page of a list with cursors. */
export interface ListAnswer<T> {
  object: 'list';
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}

/** Returns the schema of a list without pages, of few items. */
export function wholeListOf<T extends z.ZodType>(item: T, name?: string) {
  return named(z.object({ object: z.literal('list'), data: z.array(item) }), name);
}

/** Returns the schema of a list with numbered pages, as in the generic API. */
export function pageOf<T extends z.ZodType>(item: T, name?: string) {
  return named(
    z.object({
      data: z.array(item),
      pagination: z.object({
        page: z.int(),
        limit: z.int(),
        total: z.int().meta({ description: 'Number of items on all pages' }),
        pages: z.int().meta({ description: 'Number of pages' }),
      }),
    }),
    name,
  );
}

/** A page of a list with numbered pages, counted from 1. */
export interface PageAnswer<T> {
  data: T[];
  pagination: { page: number; limit: number; total: number; pages: number };
}

/** Returns the schema of a list in OpenAI's paging, which continues after `last_id`. */
export function cursorPageOf<T extends z.ZodType>(item: T, name?: string) {
  const id = z.string().nullable();
  return named(
    z.object({
      object: z.literal('list'),
      data: z.array(item),
      first_id: id,
      last_id: id.meta({ description: '`after` for the next page; null if this page is empty' }),
      has_more: z.boolean(),
    }),
    name,
  );
}

/** A page of a list in OpenAI's paging. */
export interface CursorPageAnswer<T> {
  object: 'list';
  data: T[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}
