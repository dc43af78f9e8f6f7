import { z } from '@hono/zod-openapi';
import { parseMoment } from '#base/timestamps.ts';

const wanted = 'must be a date such as 2026-11-21 (midnight UTC) or an RFC 3339 time such as 2026-11-21T09:30:00Z';

/** Returns the schema of a query parameter that bounds a period, in milliseconds since the Unix epoch. */
export function timeBound(description: string) {
  return z
    .string()
    .transform((text, context): number => {
      const momentMs = parseMoment(text);
      if (momentMs !== null) return momentMs;
      context.addIssue({ code: 'custom', message: wanted });
      return z.NEVER;
    })
    .optional()
    .openapi({ type: 'string', description, example: '2026-11-21' });
}
