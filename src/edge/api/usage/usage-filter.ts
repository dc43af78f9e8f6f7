import { z } from '@hono/zod-openapi';
import { type IdPrefix, parseId } from '#base/id.ts';
import { longText } from '#edge/api/shared/shared.ts';
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

/** Parameters that search requests, recorded and rejected. */
export const searchQuery = {
  end_user: longText(256).min(1, 'must not be empty').optional().openapi({
    description: 'Only requests that name this end user, in `safety_identifier`, `user` or `metadata.user_id`',
  }),
  status: z.coerce
    .number()
    .int('must be an HTTP status')
    .min(100, 'must be an HTTP status')
    .max(599, 'must be an HTTP status')
    .optional()
    .openapi({ type: 'integer', example: 429, description: 'Only requests with this HTTP status' }),
  error: longText(200)
    .min(1, 'must not be empty')
    .optional()
    .openapi({
      description:
        'Only requests whose error contains this text, ignoring case: `code` and `message` of rejected requests, ' +
        '`reason` of failed and ended ones',
    }),
};

interface Search {
  readonly end_user?: string | undefined;
  readonly status?: number | undefined;
  readonly error?: string | undefined;
}

/** Returns the part of a filter that these parameters are. */
export function searchOf({ end_user: endUser, status, error }: Search) {
  return { endUser: endUser ?? null, status: status ?? null, error: error ?? null };
}
