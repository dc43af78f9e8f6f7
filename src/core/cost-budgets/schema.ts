import { sql } from 'drizzle-orm';
import { check, integer, numeric, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';

/** Monthly budgets of organizations for node-hours and GPU-hours. */
export const costBudgets = pgTable(
  'cost_budgets',
  {
    organizationId: uuid('organization_id').primaryKey(),
    amount: numeric('amount', { precision: 20, scale: 10 }).notNull(),
    currency: text('currency').notNull(),
    alertPercents: integer('alert_percents').array().notNull(),
    /** Month of the last alert as YYYY-MM, and its percentage: each is sent once a month. Null: none was sent. */
    alertedMonth: text('alerted_month'),
    alertedPercent: integer('alerted_percent'),
    updatedAt: timestamp('updated_at', { withTimezone: true, mode: 'date', precision: 3 }).notNull(),
  },
  (table) => [check('cost_budgets_positive', sql`${table.amount} > 0`)],
);
