import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Answers of `/v1/budgets`. */

const scopeType = z.enum(['project', 'api_key', 'user']).meta({
  description: 'What is limited: a project, an API key, or an end user (`user`), as requests name it',
});
const period = z.enum(['daily', 'weekly', 'monthly', 'quarterly', 'yearly', 'total']).meta({
  description:
    'A UTC day, week (Monday to Sunday), month, quarter or year. `total` is the life of the budget: it never resets',
});
const mode = z
  .enum(['soft', 'hard'])
  .meta({ description: '`hard`: rejects requests over the budget. `soft`: only sends alerts' });
const budgetUsd = z.string().meta({ example: '12.5' });
const budgetUsdOrNull = budgetUsd.nullable().meta({ type: ['string', 'null'] });

/** A budget with its spending. */
export const budgetSchema = z
  .object({
    object: z.literal('budget'),
    id: idText('budget'),
    scope: z.object({
      type: scopeType,
      id: z
        .string()
        .nullable()
        .meta({
          type: ['string', 'null'],
          description: 'Id of the project or API key, or name of the end user; null is every end user without a budget',
        }),
    }),
    period,
    mode,
    models: z
      .array(z.string())
      .nullable()
      .meta({
        type: ['array', 'null'],
        description: 'Only requests that these models answer count, together; null for all models',
      }),
    amount: budgetUsd.meta({ description: 'USD per period, exact decimal' }),
    alert_percents: z
      .array(z.int())
      .meta({ description: 'Percentages of the amount at which owners and admins are notified' }),
    raise: z
      .object({
        amount: budgetUsd.meta({ description: 'USD that are added to `amount`' }),
        until: unixSeconds.meta({ description: 'End of the raise in Unix seconds' }),
      })
      .nullable()
      .meta({ description: 'The raise in effect, or null' }),
    spent: budgetUsdOrNull.meta({
      type: ['string', 'null'],
      description:
        'USD spent in this period since its last reset, including `opening_spent`; null for a budget of every end user, unless the query names one',
    }),
    held: budgetUsdOrNull.meta({
      type: ['string', 'null'],
      description: 'USD held by running requests; null for a soft budget, and while it is unknown',
    }),
    remaining: budgetUsdOrNull.meta({
      type: ['string', 'null'],
      description: 'USD left: `amount` and `raise` minus `spent` and `held`, at least 0; null if `spent` is null',
    }),
    period_start: unixSeconds.meta({ description: 'Start of this period in Unix seconds' }),
    resets_at: unixSeconds
      .nullable()
      .meta({ description: 'Start of the next period in Unix seconds; null for the period `total`' }),
    created_at: unixSeconds,
  })
  .meta({ id: 'Budget' });

export type BudgetAnswer = z.infer<typeof budgetSchema>;

/** Confirms a deletion. */
export const deletedBudgetSchema = z
  .object({ object: z.literal('budget.deleted'), id: idText('budget'), deleted: z.literal(true) })
  .meta({ id: 'BudgetDeleted' });

/** A page of budgets. */
export const budgetListSchema = cursorPageOf(budgetSchema, 'BudgetList');
