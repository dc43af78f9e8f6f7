import { bigint, index, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const microUsdPerMTok = (name: string) => bigint(name, { mode: 'bigint' });

/** Every model that an engine file ever named; a file that goes does not take its history along. */
export const models = pgTable('models', {
  id: text('id').primaryKey(),
  firstSeenAt: moment('first_seen_at').notNull(),
  /** Of a LoRA adapter the model that it was last served with; a file that goes takes this along no more than the rest. */
  baseId: text('base_id'),
});

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
