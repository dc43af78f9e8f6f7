import { bigint, index, pgTable, primaryKey, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const microUsdPerMTok = (name: string) => bigint(name, { mode: 'bigint' });

/** Every model that an engine file ever named; rows stay when files are deleted. */
export const models = pgTable('models', {
  id: text('id').primaryKey(),
  firstSeenAt: moment('first_seen_at').notNull(),
  /** Read only by gateways of the previous version, which may still run beside this one. */
  baseId: text('base_id'),
});

/**
 * Dated bases: the model whose engine served a LoRA adapter from a time on. A model that never was an adapter has no
 * row; rows stay when files are deleted.
 */
export const adapterBases = pgTable(
  'adapter_bases',
  {
    adapterId: text('adapter_id')
      .notNull()
      .references(() => models.id),
    /** Null: the model is served by its own engine from then on. */
    baseId: text('base_id'),
    effectiveFrom: moment('effective_from').notNull(),
  },
  (table) => [primaryKey({ columns: [table.adapterId, table.effectiveFrom] })],
);

/** Dated prices, one sequence of versions per model and tier: a change adds a row and never rewrites one. */
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
