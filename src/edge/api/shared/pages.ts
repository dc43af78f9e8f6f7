import { z } from '@hono/zod-openapi';
import type { PageAnswer } from '#edge/contract/lists.ts';

/** Lists of the generic API: `{data, pagination}`, with pages counted from 1. */

const limitDefault = 20;
/** Largest limit. A larger `limit` is reduced to this value, which the answer shows. */
const limitMax = 100;

/** Accepts digits only: Number() would also accept "1.5", "1e3" and " 2". */
const pageNumber = z
  .string()
  .regex(/^[1-9]\d{0,8}$/, 'must be a whole number of 1 or more')
  .transform(Number);

/** Query parameters of every page; spread them into the list's own `z.strictObject`. */
export const pageQuery = {
  page: pageNumber.default(1).openapi({ type: 'integer', minimum: 1, default: 1, description: 'Page, counted from 1' }),
  limit: pageNumber
    .default(limitDefault)
    .transform((limit) => Math.min(limit, limitMax))
    .openapi({
      type: 'integer',
      minimum: 1,
      default: limitDefault,
      description: `Items per page, at most ${limitMax}; larger values are lowered to ${limitMax}`,
    }),
};

const wholeListMax = 1000;

/** The `limit` of a short table, whose default is the whole table. */
export const wholeListLimit = pageNumber
  .default(wholeListMax)
  .transform((limit) => Math.min(limit, wholeListMax))
  .openapi({
    type: 'integer',
    minimum: 1,
    default: wholeListMax,
    description: 'Items per page; default is the whole list',
  });

export interface Sort<Field> {
  readonly by: Field;
  readonly descending: boolean;
}

/** Returns the schema of a sort field; a `-` before the field sorts descending. */
export function sortQuery<const Field extends string>(fields: readonly Field[]) {
  const names = fields.flatMap((field) => [field, `-${field}`]);
  return z
    .string()
    .transform((text, context): Sort<Field> => {
      const by = fields.find((field) => text === field || text === `-${field}`);
      if (by !== undefined) return { by, descending: text.startsWith('-') };
      context.addIssue({ code: 'custom', message: `must be one of ${names.join(', ')}` });
      return z.NEVER;
    })
    .default({ by: fields[0] as Field, descending: false })
    .openapi({
      type: 'string',
      enum: names,
      default: fields[0],
      description: 'Field to sort by; `-` before it sorts in descending order',
    });
}

export interface AskedPage {
  readonly page: number;
  readonly limit: number;
}

/** Returns a page in the form of the API; `total` is the number of items of all pages. */
export function toPage<T>(data: T[], { page, limit }: AskedPage, total: number): PageAnswer<T> {
  return { data, pagination: { page, limit, total, pages: Math.ceil(total / limit) } };
}
