import { index, jsonb, pgTable, text, uuid } from 'drizzle-orm/pg-core';

export const auditLog = pgTable(
  'audit_log',
  {
    /** UUIDv7, which contains the time of the change. */
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    actorUserId: uuid('actor_user_id'),
    actorKeyId: uuid('actor_key_id'),
    /** The service account for which the key acts; null if the key acts for a user. */
    actorServiceAccountId: uuid('actor_service_account_id'),
    action: text('action').notNull(),
    targetType: text('target_type').notNull(),
    targetId: text('target_id').notNull(),
    before: jsonb('before'),
    after: jsonb('after'),
    requestId: uuid('request_id'),
  },
  (table) => [
    index('audit_log_organization_idx').on(table.organizationId, table.id),
    index('audit_log_action_idx').on(table.organizationId, table.action, table.id),
    index('audit_log_target_idx').on(table.organizationId, table.targetId, table.id),
    // Across all organizations.
    index('audit_log_actions_idx').on(table.action, table.id),
    index('audit_log_targets_idx').on(table.targetId, table.id),
  ],
);
