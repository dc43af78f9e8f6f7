import { z } from '@hono/zod-openapi';
import { type IdPrefix, parseId } from '#base/id.ts';
import { AppError } from '#base/errors.ts';
import { exampleId } from '#edge/api/operations/operations.ts';

/** Parts that the schemas of several resources are made of. */

/** A name that people read: trimmed, 1 to `lengthMax` characters on one line. */
export function nameText(lengthMax = 200) {
  return z
    .string()
    .trim()
    .min(1, 'must not be empty')
    .max(lengthMax, `must have at most ${lengthMax} characters`)
    .refine((text) => !/\p{Cc}/u.test(text), 'must not contain control characters')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');
}

/** Free text that may have several lines and may be empty. Postgres has no U+0000. */
export function longText(lengthMax: number) {
  return z
    .string()
    .max(lengthMax, `must have at most ${lengthMax} characters`)
    .refine((text) => !text.includes('\0'), 'must not contain NUL characters')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');
}

/** The refinement of a body of PUT, of which some fields may be left out, but not all. */
export const someFields = (body: object): boolean => Object.keys(body).length > 0;
export const noFields = 'is empty: send the fields that are to change';

/** Seconds since the Unix epoch, as all times of this API but the generic one's. */
export const unixSeconds = z.int().openapi({ example: 1_790_000_000, description: 'Seconds since the Unix epoch' });

export const unixSecondsOrNull = unixSeconds.nullable();

/** Whole seconds of a moment in milliseconds. */
export function toUnixSeconds(momentMs: number): number {
  return Math.floor(momentMs / 1000);
}

export function toUnixSecondsOrNull(momentMs: number | null): number | null {
  return momentMs === null ? null : toUnixSeconds(momentMs);
}

/** An id as the API shows it; `example` in the document only. */
export function idText(prefix: IdPrefix) {
  return z.string().openapi({ example: exampleId(prefix) });
}

/** Of routes that are about an organization's own; see `organizationOf` of the guards. */
export const organizationQuery = {
  organization_id: idText('org')
    .optional()
    .openapi({ description: 'Organization of the key if absent; platform administrators may name any organization' }),
};

/**
 * The UUID of an id in a path.
 * @throws AppError not_found, as for an id of another organization: an answer must not tell the two apart
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

/** What a thing is called in sentences: "API key". */
export const nounOf = (prefix: IdPrefix): string => nouns[prefix];

export function notFound(prefix: IdPrefix): AppError {
  return new AppError('not_found', { message: `There is no such ${nouns[prefix]}.` });
}

/** A named schema of an answer, or null: of `nullable` the document says that it is an object and null at once. */
export function orNull<T extends z.ZodType>(schema: T) {
  return z.union([schema, z.null()]);
}

/** Text of a body, or null, where the document is told the type: it would lose the null. */
export function textOrNull<T extends z.ZodType>(schema: T) {
  return schema.nullable().openapi({ type: ['string', 'null'] });
}

/** A declared answer of type JSON. */
export function jsonAnswer<T extends z.ZodType>(schema: T, description: string) {
  return { description, content: { 'application/json': { schema } } };
}

/** A declared body of type JSON; the route needs `guards.jsonBody` among its middleware. */
export function jsonRequest<T extends z.ZodType>(schema: T) {
  return { required: true, content: { 'application/json': { schema } } };
}

/** Of the answer `default`, which the document gives every route by its group. */
export const errorDescription = 'Error';

/** For routes that need a key. */
export const bearerSecurity = [{ bearer: [] as string[] }];
