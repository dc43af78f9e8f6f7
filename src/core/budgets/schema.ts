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

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** What may be spent in a period: by a project, an API key, or an end user as requests name him. */
export const budgets = pgTable(
  'budgets',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    scopeType: text('scope_type', { enum: ['project', 'api_key', 'user'] }).notNull(),
    /** A UUID as text, or the end user; empty for each end user that has no budget of his own. */
    scopeId: text('scope_id').notNull(),
    period: text('period', { enum: ['daily', 'monthly'] }).notNull(),
    mode: text('mode', { enum: ['soft', 'hard'] }).notNull(),
    /** Pico-dollars. */
    amount: numeric('amount', { precision: 38, scale: 0, mode: 'bigint' }).notNull(),
    /** Percent of the amount, in order. */
    alertPercents: smallint('alert_percents').array().notNull(),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
  },
  (table) => [
    uniqueIndex('budgets_scope_key').on(table.organizationId, table.scopeType, table.scopeId, table.period, table.mode),
    index('budgets_organization_idx').on(table.organizationId, table.id),
    check('budgets_amount_positive', sql`${table.amount} > 0`),
  ],
);

/** What was told of a budget in a period, so that it is told once. A refusal counts as 100 percent. */
export const budgetAlerts = pgTable(
  'budget_alerts',
  {
    budgetId: uuid('budget_id').notNull(),
    /** The period's first day, of UTC. */
    periodStart: date('period_start', { mode: 'string' }).notNull(),
    /** Of which end user; empty for keys and projects, and where one of each tells no more: percent 0, once over 100. */
    endUser: text('end_user').notNull(),
    percent: smallint('percent').notNull(),
    /** Null for a refusal that is still to be told. */
    raisedAt: moment('raised_at'),
  },
  (table) => [
    primaryKey({ columns: [table.budgetId, table.periodStart, table.endUser, table.percent] }),
    index('budget_alerts_pending_idx')
      .on(table.budgetId, table.periodStart)
      .where(sql`${table.raisedAt} is null`),
  ],
);
