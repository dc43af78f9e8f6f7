import { z } from '@hono/zod-openapi';
import type { ListAnswer } from '#edge/contract/lists.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Lists of Headgate's own form: `{object: "list", data, has_more, next_cursor}`, newest first. */

const limitDefault = 50;
const limitMax = 500;

/** Query parameters of every list; spread them into the list's own `z.strictObject`. */
export const listQuery = {
  limit: z
    .string()
    .regex(/^[1-9]\d{0,8}$/, 'must be a whole number of 1 or more')
    .transform(Number)
    .refine((limit) => limit <= limitMax, `must be at most ${limitMax}`)
    .default(limitDefault)
    .openapi({ type: 'integer', minimum: 1, maximum: limitMax, default: limitDefault, description: 'Items per page' }),
  cursor: z.string().max(512).optional().openapi({ description: '`next_cursor` of the previous page' }),
};

/**
 * Returns a page in the form of the API.
 * @param nextPosition the start of the next page, in the form that `readCursor` parses; null on the last page
 */
export function toListPage<T>(data: T[], nextPosition: string | null): ListAnswer<T> {
  const nextCursor = nextPosition === null ? null : Buffer.from(nextPosition, 'utf8').toString('base64url');
  return { object: 'list', data, has_more: nextCursor !== null, next_cursor: nextCursor };
}

/**
 * Returns the position in a cursor; null without a cursor.
 * @param parse returns the position in a text; null if the text is not a position of this list
 * @throws ValidationError
 */
export function readCursor<T>(
  cursor: string | undefined,
  parse: (position: string) => T | null,
  field = 'cursor',
): T | null {
  if (cursor === undefined) return null;
  const position = parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  if (position === null) {
    throw new ValidationError([{ field, message: 'is not a cursor of this list' }]);
  }
  return position;
}
