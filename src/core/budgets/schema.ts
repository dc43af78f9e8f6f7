import { sql } from 'drizzle-orm';
import {
  check,
  date,
  index,
  numeric,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';
import { budgetPeriods } from './budget.ts';

const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** Limits for the spending of a project, an API key or an end user per period. */
export const budgets = pgTable(
  'budgets',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    scopeType: text('scope_type', { enum: ['project', 'api_key', 'user'] }).notNull(),
    /** A UUID as text, or the end user's name; empty for each end user without a budget of their own. */
    scopeId: text('scope_id').notNull(),
    period: text('period', { enum: budgetPeriods }).notNull(),
    mode: text('mode', { enum: ['soft', 'hard'] }).notNull(),
    /** Sorted public names; empty for all models. */
    models: text('models').array().notNull().default([]),
    /** Short hash of the models, because an index has no room for a hundred names; empty for all models. */
    modelsHash: text('models_hash').notNull().default(''),
    /** Pico-dollars. */
    amount: pico('amount').notNull(),
    /** Pico-dollars that are added until `raise_until`. */
    raiseAmount: pico('raise_amount'),
    raiseUntil: moment('raise_until'),
    /** Pico-dollars of the period that begins at `forgiven_from` that do not count. */
    forgiven: pico('forgiven'),
    forgivenFrom: date('forgiven_from', { mode: 'string' }),
    /** Percentages of the amount, in ascending order. */
    alertPercents: smallint('alert_percents').array().notNull(),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
  },
  (table) => [
    uniqueIndex('budgets_scope_key').on(
      table.organizationId,
      table.scopeType,
      table.scopeId,
      table.period,
      table.mode,
      table.modelsHash,
    ),
    index('budgets_organization_idx').on(table.organizationId, table.id),
    check('budgets_amount_positive', sql`${table.amount} > 0`),
  ],
);

/** Alerts sent for a budget in a period, so that each is sent once. A rejected request counts as 100 percent. */
export const budgetAlerts = pgTable(
  'budget_alerts',
  {
    budgetId: uuid('budget_id').notNull(),
    /** First UTC day of the period. */
    periodStart: date('period_start', { mode: 'string' }).notNull(),
    /**
     * The end user; empty for keys and projects, and when a budget for each end user sends no more alerts: percent 0,
     * then 100 after the period.
     */
    endUser: text('end_user').notNull(),
    percent: smallint('percent').notNull(),
    /** Null for a rejection whose alert is pending. */
    raisedAt: moment('raised_at'),
  },
  (table) => [
    primaryKey({ columns: [table.budgetId, table.periodStart, table.endUser, table.percent] }),
    index('budget_alerts_pending_idx')
      .on(table.budgetId, table.periodStart)
      .where(sql`${table.raisedAt} is null`),
  ],
);
