import { desc, eq, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import { type AdapterBases, createAdapterBases, type DatedBase } from './adapter-bases.ts';
import { serviceTiers, type EngineDefinition, type EnginePricing, type ServiceTier } from './engine-definition.ts';
import type { PriceVersion } from './model.ts';
import { adapterBases, models, priceVersions } from './schema.ts';

/** The newest versions by model id, for the tiers that its file has prices of. */
export type PriceTable = ReadonlyMap<string, Readonly<Partial<Record<ServiceTier, PriceVersion>>>>;

export interface SyncedModels {
  /** Unix seconds by model id. */
  readonly createdAt: ReadonlyMap<string, number>;
  readonly prices: PriceTable;
  /** Of all adapters that files ever named. */
  readonly bases: AdapterBases;
}

/** A model of the files as it is priced. */
type Priced = Pick<EngineDefinition, 'id' | 'pricing' | 'flexPricing'> & { readonly baseId: string | null };

function pricedModels(engines: readonly EngineDefinition[]): Priced[] {
  return engines.flatMap((engine) => [
    { ...engine, baseId: null },
    ...engine.lora.map((adapter) => ({ ...adapter, baseId: engine.id })),
  ]);
}

/**
 * Makes the database know the models of the files, and adds a version for each price that changed and each adapter that
 * has another base.
 */
export async function syncModels(db: Db, clock: Clock, engines: readonly EngineDefinition[]): Promise<SyncedModels> {
  const priced = pricedModels(engines);
  return db.orm.transaction(async (tx) => {
    const named = priced.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const ids = named.map(({ id }) => id);
    const firstSeenAt = new Date(clock.now());
    if (named.length > 0) {
      await tx
        .insert(models)
        .values(named.map(({ id }) => ({ id, firstSeenAt })))
        .onConflictDoNothing();
    }
    // The rows' locks make a second gateway that starts now wait, so that it sees our versions and adds none.
    const rows = await tx.select().from(models).where(inArray(models.id, ids)).orderBy(models.id).for('update');
    const newest = await newestPrices(tx, ids);
    const added = priced.flatMap((model) => {
      return serviceTiers.flatMap((tier) => {
        const pricing = pricingOf(model, tier);
        const old = newest.get(nameOf(model.id, tier));
        if (pricing === null || (old !== undefined && samePrice(old, pricing))) return [];
        return [newVersion({ modelId: model.id, tier, pricing, old }, clock)];
      });
    });
    if (added.length > 0) await tx.insert(priceVersions).values(added);
    for (const version of added) newest.set(nameOf(version.modelId, version.tier), version);
    return {
      createdAt: new Map(rows.map((row) => [row.id, Math.floor(row.firstSeenAt.getTime() / 1000)])),
      prices: priceTable(priced, newest),
      bases: createAdapterBases(await keepBases(tx, { priced, rows, now: firstSeenAt })),
    };
  });
}

interface KnownModels {
  readonly priced: readonly Priced[];
  readonly rows: readonly (typeof models.$inferSelect)[];
  /** When those were first seen that no file named before. */
  readonly now: Date;
}

/** Adds what is new of the bases. @returns all of them, oldest first */
async function keepBases(tx: Transaction, { priced, rows, now }: KnownModels): Promise<readonly DatedBase[]> {
  const known = await tx.select().from(adapterBases).orderBy(adapterBases.adapterId, adapterBases.effectiveFrom);
  const newest = new Map(known.map((version) => [version.adapterId, version]));
  const firstSeen = new Map(rows.map(({ id, firstSeenAt }) => [id, firstSeenAt]));
  const added = priced.flatMap(({ id: adapterId, baseId }): DatedBase[] => {
    const last = newest.get(adapterId);
    if ((last?.baseId ?? null) === baseId) return [];
    const own: DatedBase = { adapterId, baseId: null, effectiveFrom: firstSeen.get(adapterId) ?? new Date(0) };
    const before = last ?? own;
    // What the files name for the first time was never served otherwise.
    if (last === undefined && own.effectiveFrom >= now) return [{ ...own, baseId }];
    const effectiveFrom = new Date(Math.max(now.getTime(), before.effectiveFrom.getTime() + 1));
    const version = { adapterId, baseId, effectiveFrom };
    return last === undefined ? [own, version] : [version];
  });
  if (added.length > 0) await tx.insert(adapterBases).values(added);
  return [...known, ...added];
}

const nameOf = (modelId: string, tier: ServiceTier): string => `${tier} ${modelId}`;

function pricingOf({ pricing, flexPricing }: Priced, tier: ServiceTier): EnginePricing | null {
  return tier === 'flex' ? flexPricing : pricing;
}

function priceTable(priced: readonly Priced[], newest: ReadonlyMap<string, PriceVersion>): PriceTable {
  return new Map(
    priced.map((model) => {
      const offered = serviceTiers.filter((tier) => pricingOf(model, tier) !== null);
      return [model.id, Object.fromEntries(offered.map((tier) => [tier, newest.get(nameOf(model.id, tier))]))];
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
