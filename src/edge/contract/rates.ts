import { z } from 'zod';
import type { IdPrefix } from '#base/id.ts';
import { idText, orNull } from './fields.ts';
import { pageOf } from './lists.ts';

/** Answers for prices of hardware and rates of currencies. */

/** The currency in which an organization sees its costs. */
export const billingCurrencySchema = z
  .object({
    organization_id: idText('org'),
    currency: z
      .string()
      .nullable()
      .meta({ example: 'EUR', description: 'ISO 4217 code; null shows costs in the currencies of the rate cards' }),
  })
  .meta({ id: 'BillingCurrency' });

/** A currency. */
const currencySchema = z
  .object({
    code: z.string().meta({ example: 'EUR', description: 'ISO 4217 code' }),
    name: z.string(),
    symbol: z.string(),
    minor_units: z.int().meta({ description: 'Number of decimal places of amounts' }),
  })
  .meta({ id: 'Currency' });

/** Dates in an answer. */
const datesShown = {
  effective_from: z.iso.datetime().meta({ description: 'Start, inclusive' }),
  effective_to: z.iso.datetime().nullable().meta({ description: 'End, exclusive; null if there is none' }),
  created_at: z.iso.datetime(),
};

const hour = z
  .string()
  .nullable()
  .meta({ example: '2.49', description: 'Price per hour in `currency`, exact decimal; null is not priced' });

/** Fields of a rate card, besides id and dates. */
const rateCardFields = {
  hardware_profile: z.string().meta({ description: 'Hardware profile of nodes, or of the GPUs of engines' }),
  currency: z.string().meta({ example: 'USD', description: 'ISO 4217 code' }),
  node_hour: hour,
  gpu_hour: hour,
};

/** Fields of a conversion rate, besides id and dates. */
const conversionRateFields = {
  from: z.string().meta({ example: 'USD', description: 'ISO 4217 code' }),
  to: z.string().meta({ example: 'EUR', description: 'ISO 4217 code' }),
  rate: z.string().meta({ example: '0.92345', description: 'Value of one unit of `from` in `to`, exact decimal' }),
};

/** A page of currencies. */
export const currencyPageSchema = pageOf(currencySchema, 'Currencies');

/** Returns the schemas of one kind of dated rates, by the fields besides id and dates. */
function datedSchemas<Fields extends z.ZodRawShape>(prefix: IdPrefix, name: string, own: Fields) {
  const fields = { id: idText(prefix), ...own, ...datesShown };
  const schema = z.object(fields).meta({ id: name });
  const follows = orNull(schema).meta({ description: 'Previous rate that this one ended; null if there was none' });
  const created = z.object({ ...fields, follows }).meta({ id: `Created${name}` });
  const imported = z.object({ data: z.array(schema) }).meta({ id: `Imported${name}s` });
  return { schema, created, page: pageOf(schema, `${name}Page`), imported };
}

/** Prices of a hardware profile. */
export const rateCards = datedSchemas('rate', 'RateCard', rateCardFields);

/** Rates between two currencies. */
export const conversionRates = datedSchemas('conv', 'ConversionRate', conversionRateFields);

export type CurrencyAnswer = z.infer<typeof currencySchema>;
export type BillingCurrencyAnswer = z.infer<typeof billingCurrencySchema>;
export type RateCardAnswer = z.infer<typeof rateCards.schema>;
export type CreatedRateAnswer = z.infer<typeof rateCards.created> | z.infer<typeof conversionRates.created>;
export type ConversionRateAnswer = z.infer<typeof conversionRates.schema>;
