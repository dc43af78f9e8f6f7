import { z } from '@hono/zod-openapi';
import { parseWindow, type Window, type WindowQuery } from '#core/costs/costs.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Window of a report: `month`, or `from` and `to`. */

const bound = (description: string) => z.string().optional().openapi({ description, example: '2026-03-01' });

const windowFields = {
  from: bound('Start: a date (midnight in `tz`) or an RFC 3339 time, inclusive'),
  to: bound('End: a date or time, exclusive'),
  month: z.string().optional().openapi({ description: 'Month instead of `from` and `to`', example: '2026-03' }),
  tz: z.string().optional().openapi({
    description: 'IANA time zone of dates and months; default is UTC',
    example: 'Europe/Berlin',
  }),
};

/** Returns the query of a report: the window, and further fields. */
export function windowQuery<Fields extends z.core.$ZodLooseShape>(fields: Fields) {
  return z.strictObject({ ...windowFields, ...fields }).superRefine((query, context) => {
    const result = parseWindow(textsOf(query));
    if (result.kind === 'window') return;
    for (const { field, message } of result.problems) context.addIssue({ code: 'custom', path: [field], message });
    // Also checked if there are unknown fields, so that all problems are reported together.
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
