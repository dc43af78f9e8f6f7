import { bigint, index, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const microUsdPerMTok = (name: string) => bigint(name, { mode: 'bigint' });

/** Every model that an engine file ever named; a file that goes does not take its history along. */
export const models = pgTable('models', {
  id: text('id').primaryKey(),
  firstSeenAt: moment('first_seen_at').notNull(),
  /** Read by gateways of the version before alone, which may still run beside this one. */
  baseId: text('base_id'),
});

/**
 * Dated as prices are: which model a LoRA adapter was served with from a moment on. A model that never was an adapter
 * has no row; a file that goes takes none along.
 */
export const adapterBases = pgTable(
  'adapter_bases',
  {
    adapterId: text('adapter_id')
      .notNull()
      .references(() => models.id),
    /** Null: it is a model of its own, served by its own engine. */
    baseId: text('base_id'),
    effectiveFrom: moment('effective_from').notNull(),
  },
  (table) => [primaryKey({ columns: [table.adapterId, table.effectiveFrom] })],
);

/** Dated prices, one line of versions per model and tier: a change adds a row and never rewrites one. */
export const priceVersions = pgTable(
  'price_versions',
  {
    id: uuid('id').primaryKey(),
    modelId: text('model_id')
      .notNull()
      .references(() => models.id),
    tier: text('tier', { enum: ['default', 'flex'] })
      .notNull()
      .default('default'),
    inputPerMTokMicroUsd: microUsdPerMTok('input_per_mtok_micro_usd').notNull(),
    cachedInputPerMTokMicroUsd: microUsdPerMTok('cached_input_per_mtok_micro_usd').notNull(),
    outputPerMTokMicroUsd: microUsdPerMTok('output_per_mtok_micro_usd').notNull(),
    currency: text('currency').notNull(),
    effectiveFrom: moment('effective_from').notNull(),
  },
  (table) => [index('price_versions_model_idx').on(table.modelId, table.tier, table.effectiveFrom)],
);
