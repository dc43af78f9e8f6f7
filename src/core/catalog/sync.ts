import { desc, eq, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import { serviceTiers, type EngineDefinition, type EnginePricing, type ServiceTier } from './engine-definition.ts';
import type { PriceVersion } from './model.ts';
import { models, priceVersions } from './schema.ts';

/** The newest versions by model id, for the tiers that its file has prices of. */
export type PriceTable = ReadonlyMap<string, Readonly<Partial<Record<ServiceTier, PriceVersion>>>>;

export interface SyncedModels {
  /** Unix seconds by model id. */
  readonly createdAt: ReadonlyMap<string, number>;
  readonly prices: PriceTable;
}

/** Makes the database know the models of the files, and adds a price version for each price that changed. */
export async function syncModels(db: Db, clock: Clock, engines: readonly EngineDefinition[]): Promise<SyncedModels> {
  if (engines.length === 0) return { createdAt: new Map(), prices: new Map() };
  return db.orm.transaction(async (tx) => {
    const ids = engines.map(({ id }) => id).toSorted();
    const firstSeenAt = new Date(clock.now());
    await tx
      .insert(models)
      .values(ids.map((id) => ({ id, firstSeenAt })))
      .onConflictDoNothing();
    // The rows' locks make a second gateway that starts now wait, so that it sees our versions and adds none.
    const rows = await tx.select().from(models).where(inArray(models.id, ids)).orderBy(models.id).for('update');
    const newest = await newestPrices(tx, ids);
    const added = engines.flatMap((engine) => {
      return serviceTiers.flatMap((tier) => {
        const pricing = pricingOf(engine, tier);
        const old = newest.get(nameOf(engine.id, tier));
        if (pricing === null || (old !== undefined && samePrice(old, pricing))) return [];
        return [newVersion({ modelId: engine.id, tier, pricing, old }, clock)];
      });
    });
    if (added.length > 0) await tx.insert(priceVersions).values(added);
    for (const version of added) newest.set(nameOf(version.modelId, version.tier), version);
    return {
      createdAt: new Map(rows.map((row) => [row.id, Math.floor(row.firstSeenAt.getTime() / 1000)])),
      prices: priceTable(engines, newest),
    };
  });
}

const nameOf = (modelId: string, tier: ServiceTier): string => `${tier} ${modelId}`;

function pricingOf({ pricing, flexPricing }: EngineDefinition, tier: ServiceTier): EnginePricing | null {
  return tier === 'flex' ? flexPricing : pricing;
}

function priceTable(engines: readonly EngineDefinition[], newest: ReadonlyMap<string, PriceVersion>): PriceTable {
  return new Map(
    engines.map((engine) => {
      const offered = serviceTiers.filter((tier) => pricingOf(engine, tier) !== null);
      return [engine.id, Object.fromEntries(offered.map((tier) => [tier, newest.get(nameOf(engine.id, tier))]))];
    }),
  );
}

/** By tier and model. */
async function newestPrices(tx: Transaction, ids: readonly string[]): Promise<Map<string, PriceVersion>> {
  const { modelId, tier, effectiveFrom, id } = priceVersions;
  const rows = await tx
    .selectDistinctOn([modelId, tier])
    .from(priceVersions)
    .where(inArray(modelId, [...ids]))
    .orderBy(modelId, tier, desc(effectiveFrom), desc(id));
  return new Map(rows.map((row) => [nameOf(row.modelId, row.tier), { ...row, currency: 'USD' }]));
}

/** Null where there is no such version. */
export async function readPriceVersion(db: Db, id: string): Promise<PriceVersion | null> {
  const [row] = await db.orm.select().from(priceVersions).where(eq(priceVersions.id, id));
  return row === undefined ? null : { ...row, currency: 'USD' };
}

function samePrice(a: EnginePricing, b: EnginePricing): boolean {
  return (
    a.inputPerMTokMicroUsd === b.inputPerMTokMicroUsd &&
    a.cachedInputPerMTokMicroUsd === b.cachedInputPerMTokMicroUsd &&
    a.outputPerMTokMicroUsd === b.outputPerMTokMicroUsd
  );
}

interface NewPrice {
  readonly modelId: string;
  readonly tier: ServiceTier;
  readonly pricing: EnginePricing;
  readonly old: PriceVersion | undefined;
}

function newVersion({ modelId, tier, pricing, old }: NewPrice, clock: Clock): PriceVersion {
  // A clock that stepped back must not make the new version older than the one it follows.
  const effectiveFromMs = Math.max(clock.now(), (old?.effectiveFrom.getTime() ?? 0) + 1);
  return { id: uuidv7(), modelId, tier, ...pricing, currency: 'USD', effectiveFrom: new Date(effectiveFromMs) };
}
