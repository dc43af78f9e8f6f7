import { z } from '@hono/zod-openapi';
import { type IdPrefix, parseId } from '#base/id.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Returns the schema of a query parameter for an id, which is parsed to its UUID. */
export function idFilter(prefix: IdPrefix, what: string) {
  return z
    .string()
    .transform((text, context): string => {
      const id = parseId(prefix, text);
      if (id !== null) return id;
      context.addIssue({ code: 'custom', message: `is not the id of ${what}, which begins with "${prefix}_"` });
      return z.NEVER;
    })
    .optional()
    .openapi({
      type: 'string',
      example: `${prefix}_019ab1c2d3e47f008a1b2c3d4e5f6071`,
      description: `Only requests of ${what}`,
    });
}

/** @throws ValidationError if the span has no time in it */
export function requireOrder({ from, to }: { readonly from?: number | undefined; readonly to?: number | undefined }) {
  if (from !== undefined && to !== undefined && from >= to)
    throw new ValidationError([{ field: 'to', message: 'must be after "from"' }]);
}
