import { z } from 'zod';
import type { IdPrefix } from '#base/id.ts';

/**
 * Fields that answers share. The OpenAPI document gets names (`id`), descriptions and examples of schemas from `.meta`.
 * The command line also loads this room, which therefore uses zod only.
 */

/** Returns the metadata of a schema that has the fields of another one and more, as `id` is for other schemas. */
export function extension(id: string, schema: z.ZodType) {
  return { _internal: { refId: id, extendedFrom: { refId: schema.meta()?.id, schema } } };
}

/** Returns the id that examples of the OpenAPI document share. */
export const exampleId = (prefix: IdPrefix): string => `${prefix}_019ab1c2d3e47f008a1b2c3d4e5f6071`;

/** Returns the schema of an id; the example is for the OpenAPI document only. */
export function idText(prefix: IdPrefix) {
  return z.string().meta({ example: exampleId(prefix) });
}

/** Seconds since the Unix epoch, for all times except those of the generic API. */
export const unixSeconds = z.int().meta({ example: 1_790_000_000, description: 'Seconds since the Unix epoch' });

/** Seconds since the Unix epoch, or null. */
export const unixSecondsOrNull = unixSeconds.nullable();

/** An amount in USD. */
export const usd = z.string().meta({ example: '12.5', description: 'USD, exact decimal' });

/** Returns a schema or null. With `nullable`, the OpenAPI document would require an object and null at once. */
export function orNull<T extends z.ZodType>(schema: T) {
  return z.union([schema, z.null()]);
}

/** Returns the schema of a text or null. Without the stated type, the OpenAPI document would lose the null. */
export function textOrNull<T extends z.ZodType>(schema: T) {
  return schema.nullable().meta({ type: ['string', 'null'] });
}

/** Returns the schema of a name: trimmed, 1 to `lengthMax` characters on one line. */
export function nameText(lengthMax = 200) {
  return z
    .string()
    .trim()
    .min(1, 'must not be empty')
    .max(lengthMax, `must have at most ${lengthMax} characters`)
    .refine((text) => !/\p{Cc}/u.test(text), 'must not contain control characters')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode');
}
