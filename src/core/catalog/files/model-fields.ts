import { z } from 'zod';

/** Fields that every model of an engine file may have: the engine's own model and its adapters. */

const pricePattern = /^\d{1,9}(\.\d{1,6})?$/;
const multiplierPattern = /^(0(\.\d{1,6})?|1(\.0{1,6})?)$/;
const multiplierText = 'expected a decimal from 0 to 1 with at most 6 decimal places';
const priceText = 'expected an amount in US dollars, 0 or more, with at most 6 decimal places';
const engineIdPattern = /^[A-Za-z0-9_][A-Za-z0-9._:/-]{0,127}$/;
/** Matches names that are shown to people and sent in headers and arguments: no control characters. */
const printablePattern = /^[^\p{Cc}\p{Cs}]+$/u;

/** A price. It reaches zod as the text in the file, not as a parsed number: binary fractions would not be exact. */
const price = (what: string) =>
  z
    .string(priceText)
    .regex(pricePattern, priceText)
    .meta({
      type: ['string', 'number'],
      minimum: 0,
      description: `${what}, USD per million tokens, with at most 6 decimal places.`,
    });

/** A share of the prices, as text for the same reason as `price`. */
const multiplier = z
  .string(multiplierText)
  .regex(multiplierPattern, multiplierText)
  .meta({
    type: ['string', 'number'],
    minimum: 0,
    maximum: 1,
    description:
      'Requests with service_tier "flex" cost the prices times this factor. Without it, Headgate rejects them.',
  });

export const printable = (max: number) =>
  z.string().min(1).max(max).regex(printablePattern, 'control characters are not allowed here');

export const modelId = z
  .string()
  .regex(engineIdPattern, 'expected up to 128 letters, digits and . _ - / : starting with a letter or digit');

export const aliasesField = z
  .array(printable(128))
  .max(100)
  .default([])
  .describe('Other names that requests may use; case does not matter. Responses contain the id.');

export const fallbacksField = z
  .array(printable(128))
  .max(8)
  .default([])
  .describe(
    'Models of other engines, by any of their names, that Headgate tries in this order if this one fails. Only for requests ' +
      'with x-headgate-allow-fallback: true. Fallbacks of a fallback are ignored.',
  );

const prices = {
  input_per_million: price('Prompt tokens'),
  output_per_million: price('Generated tokens'),
  flex_multiplier: multiplier.optional(),
};
const cachedPrice = price('Cached prompt tokens');
export const pricingText = 'Without prices, the model is listed but its requests are rejected.';

export const pricingField = z.strictObject({ ...prices, cached_input_per_million: cachedPrice });
export const externalPricingField = z.strictObject({ ...prices, cached_input_per_million: cachedPrice.optional() });
