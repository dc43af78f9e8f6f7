import { z } from 'zod';

/** Fields that every model of an engine file may have: the engine's own model and its adapters. */

const pricePattern = /^\d{1,9}(\.\d{1,6})?$/;
const multiplierPattern = /^(0(\.\d{1,6})?|1(\.0{1,6})?)$/;
const multiplierText = 'expected a plain decimal from 0 to 1 with at most 6 decimals';
const priceText = 'expected a plain decimal of US dollars, 0 or more, with at most 6 decimals';
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
      description: `${what}, USD per million tokens: a plain decimal, at most 6 decimals.`,
    });

/** A share of the prices, as text for the same reason as `price`. */
const multiplier = z
  .string(multiplierText)
  .regex(multiplierPattern, multiplierText)
  .meta({
    type: ['string', 'number'],
    minimum: 0,
    maximum: 1,
    description: 'Requests of service_tier "flex" cost this share of the prices; without it they are refused.',
  });

export const printable = (max: number) =>
  z.string().min(1).max(max).regex(printablePattern, 'control characters are not allowed here');

export const modelId = z
  .string()
  .regex(engineIdPattern, 'expected up to 128 letters, digits and . _ - / : beginning with a letter or digit');

export const aliasesField = z
  .array(printable(128))
  .max(100)
  .default([])
  .describe('Further names that requests may use, without regard to case; answers call the model by its id.');

export const fallbacksField = z
  .array(printable(128))
  .max(8)
  .default([])
  .describe(
    'Models of other engines, by any of their names, that may answer in this order where this one cannot: only requests ' +
      'with x-headgate-allow-fallback: true. Those of a fallback itself do not count.',
  );

const prices = {
  input_per_million: price('Prompt tokens'),
  output_per_million: price('Generated tokens'),
  flex_multiplier: multiplier.optional(),
};
const cachedPrice = price('Prompt tokens that the engine had cached');
export const pricingText = 'Without prices the model is listed, and its requests are refused.';

export const pricingField = z.strictObject({ ...prices, cached_input_per_million: cachedPrice });
export const externalPricingField = z.strictObject({ ...prices, cached_input_per_million: cachedPrice.optional() });
