import { z } from '@hono/zod-openapi';
import { type IdPrefix, parseId } from '#base/id.ts';
import { AppError } from '#base/errors.ts';
import { parseMoment } from '#base/timestamps.ts';
import { idText } from '#edge/contract/fields.ts';

/** Shared parts of the schemas of several resources. */

/** Returns the schema of free text, which may have several lines and may be empty. PostgreSQL cannot store U+0000. */
export function longText(lengthMax: number) {
  return z
    .string()
    .max(lengthMax, `must have at most ${lengthMax} characters`)
    .refine((text) => !text.includes('\0'), 'must not contain NUL characters')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');
}

/** Refines a body of PUT, which may leave out some fields but not all. */
export const someFields = (body: object): boolean => Object.keys(body).length > 0;
export const noFields = 'is empty: send at least one field to change';

/** Converts milliseconds to whole seconds. */
export function toUnixSeconds(momentMs: number): number {
  return Math.floor(momentMs / 1000);
}

export function toUnixSecondsOrNull(momentMs: number | null): number | null {
  return momentMs === null ? null : toUnixSeconds(momentMs);
}

/** Query parameter of routes for an organization's resources; see `organizationOf` of the guards. */
export const organizationQuery = {
  organization_id: idText('org').optional().openapi({
    description:
      'Organization to act in; default is that of the key. Only platform administrators may name another one',
  }),
};

/** Query parameter of lists that platform administrators read for all organizations; see `organizationOrAll`. */
export const listedOrganizationQuery = {
  organization_id: idText('org').optional().openapi({
    description: 'Only this organization; default is that of the key, or all for platform administrators',
  }),
};

/**
 * Returns the UUID of an id in a path.
 * @throws AppError not_found for an invalid id, as for an id of another organization: an answer must not tell these
 * apart
 */
export function requireId(prefix: IdPrefix, text: string): string {
  const id = parseId(prefix, text);
  if (id === null) throw notFound(prefix);
  return id;
}

const nouns: Readonly<Record<IdPrefix, string>> = {
  key: 'API key',
  org: 'organization',
  proj: 'project',
  svc_acct: 'service account',
  user: 'user',
  session: 'session',
  inv: 'invitation',
  le: 'ledger entry',
  rate: 'rate card',
  conv: 'conversion rate',
  cluster: 'cluster',
  node: 'node of this cluster',
  stack: 'stack',
  run: 'run',
  wh: 'webhook',
  evt: 'event',
  dlv: 'delivery of this webhook',
  budget: 'budget',
  file: 'file',
  batch: 'batch',
};

/** Returns the name of a resource in sentences: "API key". */
export const nounOf = (prefix: IdPrefix): string => nouns[prefix];

export function notFound(prefix: IdPrefix): AppError {
  return new AppError('not_found', { message: `There is no such ${nouns[prefix]}.` });
}

/** Declares an answer of type JSON. */
export function jsonAnswer<T extends z.ZodType>(schema: T, description: string) {
  return { description, content: { 'application/json': { schema } } };
}

/** Declares a body of type JSON; the route needs `guards.jsonBody` among its middleware. */
export function jsonRequest<T extends z.ZodType>(schema: T) {
  return { required: true, content: { 'application/json': { schema } } };
}

/** Description of the answer `default`, which the document gives every route by its group. */
export const errorDescription = 'Error';

/** Security of routes that need a key. */
export const bearerSecurity = [{ bearer: [] as string[] }];

const timeExpected =
  'must be a date such as 2026-11-21 (midnight UTC) or an RFC 3339 time such as 2026-11-21T09:30:00Z';

/** Returns the schema of a query parameter that bounds a period, in milliseconds since the Unix epoch. */
export function timeBound(description: string) {
  return z
    .string()
    .transform((text, context): number => {
      const momentMs = parseMoment(text);
      if (momentMs !== null) return momentMs;
      context.addIssue({ code: 'custom', message: timeExpected });
      return z.NEVER;
    })
    .optional()
    .openapi({ type: 'string', description, example: '2026-11-21' });
}
