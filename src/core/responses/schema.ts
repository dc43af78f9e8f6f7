import { customType, index, integer, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

/** Keys that encrypt stored responses, each encrypted with a platform key. The newest encrypts new responses. */
export const responseKeys = pgTable('response_keys', {
  id: uuid('id').primaryKey(),
  /** Fingerprint of the platform key. */
  platformKeyId: text('platform_key_id').notNull(),
  sealed: bytes('sealed').notNull(),
});

/** Responses of /v1/responses, each with the input items of its own turn. */
export const storedResponses = pgTable(
  'stored_responses',
  {
    /** Id of the request, a UUIDv7: the response is `resp_<id>`. */
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The response that this one continues; it may be deleted by now. */
    previousId: uuid('previous_id'),
    expiresAt: moment('expires_at').notNull(),
    dataKeyId: uuid('data_key_id').notNull(),
    /** Bytes of both texts before compression. */
    bytes: integer('bytes').notNull(),
    /** Texts, compressed with Zstandard and then encrypted: the list of input items, and the response. */
    input: bytes('input').notNull(),
    response: bytes('response').notNull(),
  },
  (table) => [index('stored_responses_expiry_idx').on(table.expiresAt)],
);

/** Output items by the id that an `item_reference` names. Engines may use an id again, so each has its response too. */
export const storedResponseItems = pgTable(
  'stored_response_items',
  {
    organizationId: uuid('organization_id').notNull(),
    itemId: text('item_id').notNull(),
    responseId: uuid('response_id')
      .notNull()
      .references(() => storedResponses.id, { onDelete: 'cascade' }),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.itemId, table.responseId] }),
    index('stored_response_items_response_idx').on(table.responseId),
  ],
);
