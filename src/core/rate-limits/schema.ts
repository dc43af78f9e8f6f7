import { sql } from 'drizzle-orm';
import { bigint, check, integer, pgTable, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** Limits of a project for a model; null is unlimited. A model without limits has no row. */
export const projectRateLimits = pgTable(
  'project_rate_limits',
  {
    /** Id of the counters: limits that are removed and set again start at zero. */
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** Catalog id. */
    model: text('model').notNull(),
    requestsPerMinute: integer('requests_per_minute'),
    tokensPerMinute: bigint('tokens_per_minute', { mode: 'number' }),
    requestsPerDay: integer('requests_per_day'),
    createdAt: moment('created_at').notNull(),
    updatedAt: moment('updated_at').notNull(),
  },
  (table) => [
    uniqueIndex('project_rate_limits_model_key').on(table.organizationId, table.projectId, table.model),
    check(
      'project_rate_limits_limit_something',
      sql`coalesce(${table.requestsPerMinute}, ${table.tokensPerMinute}, ${table.requestsPerDay}) is not null`,
    ),
  ],
);
