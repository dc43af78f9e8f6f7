import { desc, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import type { EngineDefinition, EnginePricing } from './engine-definition.ts';
import type { PriceVersion } from './model.ts';
import { models, priceVersions } from './schema.ts';

export interface SyncedModels {
  /** Unix seconds by model id. */
  readonly createdAt: ReadonlyMap<string, number>;
  /** The newest version by model id, for engines that have prices. */
  readonly prices: ReadonlyMap<string, PriceVersion>;
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
    const added = engines.flatMap(({ id, pricing }) => {
      const old = newest.get(id);
      if (pricing === null || (old !== undefined && samePrice(old, pricing))) return [];
      return [newVersion(id, pricing, old, clock)];
    });
    if (added.length > 0) await tx.insert(priceVersions).values(added);
    for (const version of added) newest.set(version.modelId, version);
    const prices = engines.flatMap(({ id, pricing }): [string, PriceVersion][] => {
      const version = newest.get(id);
      return pricing === null || version === undefined ? [] : [[id, version]];
    });
    return {
      createdAt: new Map(rows.map((row) => [row.id, Math.floor(row.firstSeenAt.getTime() / 1000)])),
      prices: new Map(prices),
    };
  });
}

async function newestPrices(tx: Transaction, ids: readonly string[]): Promise<Map<string, PriceVersion>> {
  const rows = await tx
    .selectDistinctOn([priceVersions.modelId])
    .from(priceVersions)
    .where(inArray(priceVersions.modelId, [...ids]))
    .orderBy(priceVersions.modelId, desc(priceVersions.effectiveFrom), desc(priceVersions.id));
  return new Map(rows.map((row) => [row.modelId, { ...row, currency: 'USD' }]));
}

function samePrice(a: EnginePricing, b: EnginePricing): boolean {
  return (
    a.inputPerMTokMicroUsd === b.inputPerMTokMicroUsd &&
    a.cachedInputPerMTokMicroUsd === b.cachedInputPerMTokMicroUsd &&
    a.outputPerMTokMicroUsd === b.outputPerMTokMicroUsd
  );
}

function newVersion(
  modelId: string,
  pricing: EnginePricing,
  old: PriceVersion | undefined,
  clock: Clock,
): PriceVersion {
  // A clock that stepped back must not make the new version older than the one it follows.
  const effectiveFromMs = Math.max(clock.now(), (old?.effectiveFrom.getTime() ?? 0) + 1);
  return { id: uuidv7(), modelId, ...pricing, currency: 'USD', effectiveFrom: new Date(effectiveFromMs) };
}
