import { z } from '@hono/zod-openapi';
import { parseWindow, type Window, type WindowQuery } from '#core/costs/costs.ts';
import { ValidationError } from '#edge/http/http.ts';

/** The window of a report: `month`, or `from` and `to`. */

const bound = (description: string) => z.string().optional().openapi({ description, example: '2026-03-01' });

const windowFields = {
  from: bound('From this date (midnight in tz) or RFC 3339 time with its offset on'),
  to: bound('Until before this date or time, which is not part of it'),
  month: z.string().optional().openapi({ description: 'In the place of from and to', example: '2026-03' }),
  tz: z.string().optional().openapi({
    description: 'Time zone of dates and months by its IANA name; UTC without it',
    example: 'Europe/Berlin',
  }),
};

/** The query of a report: the window and whatever fields it has beside. */
export function windowQuery<Fields extends z.core.$ZodLooseShape>(fields: Fields) {
  return z.strictObject({ ...windowFields, ...fields }).superRefine((query, context) => {
    const result = parseWindow(textsOf(query));
    if (result.kind === 'window') return;
    for (const { field, message } of result.problems) context.addIssue({ code: 'custom', path: [field], message });
    // Beside fields that are not known, too: all that is wrong is told at once.
  }, beside);
}

const beside = { when: () => true };

function textsOf(query: object): WindowQuery {
  const texts = Object.entries(query).filter((entry) => typeof entry[1] === 'string');
  return Object.fromEntries(texts);
}

/** @throws ValidationError */
export function requireWindow(query: WindowQuery): Window {
  const result = parseWindow(query);
  if (result.kind === 'problems') throw new ValidationError(result.problems);
  return result.window;
}

export const windowSchema = z.object({
  from: z.iso.datetime(),
  to: z.iso.datetime().openapi({ description: 'Not part of it' }),
  tz: z.string(),
  as_of: z.iso.datetime().openapi({ description: 'Until when what goes on is counted' }),
});
