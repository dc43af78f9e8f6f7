import { z } from '@hono/zod-openapi';
import { MICRO_DIGITS } from '#base/money.ts';
import { budgetModes, budgetPeriods, scopeTypes } from '#core/budgets/budgets.ts';
import {
  amountText,
  cursorListQuery,
  idText,
  longText,
  noFields,
  someFields,
  unixSeconds,
} from '#edge/api/shared/shared.ts';

/** Schemas of `/v1/budgets`. */

const percentsMax = 10;
const percentMax = 1000;

const scopeType = z.enum(scopeTypes).openapi({
  description: 'What is limited: a project, an API key, or an end user (`user`), as requests name it',
});
const period = z.enum(budgetPeriods).openapi({ description: 'A day or a month in UTC' });
const mode = z
  .enum(budgetModes)
  .openapi({ description: '`hard`: rejects requests over the budget. `soft`: only sends alerts' });
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
    amount: amountUsd,
    mode: mode.default('hard'),
    alert_percents: percents.default([80, 100]),
    organization_id: cursorListQuery.organization_id,
  })
  .openapi('CreateBudget');

export const patchBudgetSchema = z
  .strictObject({
    amount: amountUsd.optional(),
    mode: mode.optional(),
    alert_percents: percents.optional(),
  })
  .refine(someFields, noFields)
  .openapi('PatchBudget');

const usd = z.string().openapi({ example: '12.5' });
const usdOrNull = usd.nullable().openapi({ type: ['string', 'null'] });

export const budgetSchema = z
  .object({
    object: z.literal('budget'),
    id: idText('budget'),
    scope: z.object({
      type: scopeType,
      id: z
        .string()
        .nullable()
        .openapi({
          type: ['string', 'null'],
          description: 'Id of the project or API key, or name of the end user; null is every end user without a budget',
        }),
    }),
    period,
    mode,
    amount: usd.openapi({ description: 'USD per period, exact decimal' }),
    alert_percents: z
      .array(z.int())
      .openapi({ description: 'Percentages of the amount at which owners and admins are notified' }),
    spent: usdOrNull.openapi({
      type: ['string', 'null'],
      description: 'USD spent in this period; null for a budget of every end user, unless the query names one',
    }),
    held: usdOrNull.openapi({
      type: ['string', 'null'],
      description: 'USD held by running requests; null for a soft budget, and while it is unknown',
    }),
    remaining: usdOrNull.openapi({
      type: ['string', 'null'],
      description: 'USD left: `amount` minus `spent` and `held`, at least 0; null if `spent` is null',
    }),
    period_start: unixSeconds.openapi({ description: 'Start of this period in Unix seconds' }),
    resets_at: unixSeconds.openapi({ description: 'Start of the next period in Unix seconds' }),
    created_at: unixSeconds,
  })
  .openapi('Budget');

export type BudgetAnswer = z.infer<typeof budgetSchema>;

export const deletedBudgetSchema = z
  .object({ object: z.literal('budget.deleted'), id: idText('budget'), deleted: z.literal(true) })
  .openapi('BudgetDeleted');

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
});
