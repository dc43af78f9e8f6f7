import { z } from '@hono/zod-openapi';
import { MICRO_DIGITS, PICO_DIGITS } from '#base/money.ts';
import { amountText, cursorListQuery, longText, noFields, someFields } from '#edge/api/shared/shared.ts';
import { budgetSchema } from '#edge/contract/budgets.ts';
import { unixSeconds } from '#edge/contract/fields.ts';

/** Schemas of `/v1/budgets`. */

const percentsMax = 10;
const percentMax = 1000;

const { period, mode } = budgetSchema.shape;
const scopeType = budgetSchema.shape.scope.shape.type;
const scopeId = longText(256).refine((text) => text !== '', 'must not be empty');

const percents = z
  .array(z.int().min(1, 'must be 1 or more').max(percentMax, `must be at most ${percentMax}`))
  .max(percentsMax, `must have at most ${percentsMax} entries`)
  .transform((all) => [...new Set(all)].toSorted((a, b) => a - b))
  .openapi({
    type: 'array',
    items: { type: 'integer', minimum: 1, maximum: percentMax },
    description: 'Percentages of the amount at which owners and admins are notified, once per period',
    example: [80, 100],
  });

/** Amount of a budget. Admission counts in micro-dollars, so at most 6 decimal places are accepted. */
const amountUsd = amountText({
  isSigned: false,
  places: MICRO_DIGITS,
  example: '25',
  description: 'USD per period, a decimal with at most 6 places',
});

/** End of the year 9999. */
const untilMax = 253_402_300_799;
const modelsMax = 100;
const models = z
  .array(longText(256))
  .min(1, 'must have an entry, or be null')
  .max(modelsMax, `must have at most ${modelsMax} entries`)
  .nullable()
  .openapi({
    type: ['array', 'null'],
    items: { type: 'string' },
    minItems: 1,
    maxItems: modelsMax,
    description: 'Models whose answers count, together; aliases are replaced by their model. Default: null, all models',
    example: null,
  });

const raise = z
  .strictObject({
    amount: amountText({
      isSigned: false,
      places: MICRO_DIGITS,
      example: '10',
      description: 'USD that are added to the amount',
    }),
    until: unixSeconds
      .max(untilMax, `must be at most ${untilMax}`)
      .openapi({ description: 'End of the raise in Unix seconds, in the future' }),
  })
  .nullable()
  .openapi({ type: ['object', 'null'], description: 'Raises the amount until a given time; null ends the raise' });

export const createBudgetSchema = z
  .strictObject({
    scope: z.strictObject({
      type: scopeType,
      id: scopeId.nullable().openapi({
        type: ['string', 'null'],
        description:
          'Id of the project or API key. For type `user`: the name of the end user in requests, or ' +
          'null for every end user without a budget',
      }),
    }),
    period,
    models: models.default(null),
    amount: amountUsd,
    opening_spent: amountText({
      isSigned: false,
      places: PICO_DIGITS,
      example: '3.5',
      description: 'USD already spent elsewhere in the current period; counts against the budget',
    }).optional(),
    mode: mode.default('hard'),
    alert_percents: percents.default([80, 100]),
    organization_id: cursorListQuery.organization_id,
  })
  .openapi('CreateBudget');

export const patchBudgetSchema = z
  .strictObject({
    amount: amountUsd.optional(),
    mode: mode.optional(),
    raise: raise.optional(),
    alert_percents: percents.optional(),
  })
  .refine(someFields, noFields)
  .openapi('PatchBudget');

const user = scopeId
  .optional()
  .openapi({ description: 'End user whose spending is shown, for a budget of every end user' });

export const budgetQuery = z.strictObject({ organization_id: cursorListQuery.organization_id, user });

export const listBudgetsQuery = z.strictObject({
  ...cursorListQuery,
  scope_type: scopeType.optional(),
  scope_id: scopeId
    .optional()
    .openapi({ description: 'Only budgets of this project, API key or end user; requires `scope_type`' }),
  alerted: z
    .literal('true')
    .optional()
    .openapi({ description: 'Only budgets that have sent an alert in the current period' }),
});
