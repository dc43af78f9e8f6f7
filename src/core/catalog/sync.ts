import { desc, eq, inArray } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import {
  type EngineDefinition,
  type EnginePricing,
  type ServiceTier,
  serviceTiers,
} from '#core/catalog/files/files.ts';
import { type AdapterBases, createAdapterBases, type DatedBase } from './adapter-bases.ts';
import type { PriceVersion } from './model.ts';
import { adapterBases, models, priceVersions } from './schema.ts';

/** Prices and bases in the database: the versions in effect on every gateway. */
export interface Versions {
  /** The newest version of each model and tier, by `versionKey`. */
  readonly prices: ReadonlyMap<string, PriceVersion>;
  /** Bases of all adapters that files ever named. */
  readonly bases: AdapterBases;
}

export interface SyncedModels extends Versions {
  /** Creation times in Unix seconds, by model id. */
  readonly createdAt: ReadonlyMap<string, number>;
  /** Ids of models whose file has another price or base than the one in effect. */
  readonly pending: readonly string[];
}

/** A model of the files with its prices. */
export type Priced = Pick<EngineDefinition, 'id' | 'file' | 'pricing' | 'flexPricing'> & {
  /** Null for an engine's own model. */
  readonly baseId: string | null;
};

/** A price that succeeded another one. */
export interface PriceChange {
  readonly old: PriceVersion;
  readonly new: PriceVersion;
  /** Engine file with the new price. */
  readonly file: string;
}

export interface SyncOptions {
  readonly db: Db;
  readonly clock: Clock;
  /** Runs in the transaction that writes the new version. */
  readonly onPriceChanged?: (tx: Transaction, change: PriceChange) => Promise<void>;
}

export function pricedModels(engines: readonly EngineDefinition[]): Priced[] {
  return engines.flatMap((engine) => [
    { ...engine, baseId: null },
    ...engine.lora.map((adapter) => ({ ...adapter, file: engine.file, baseId: engine.id })),
  ]);
}

/**
 * Writes the models of the files to the database. A first price or base is always written. One that differs from the
 * version in effect is written only if no live gateway has different files: otherwise two gateways with different files
 * would bill one model differently, or alternate in changing it back.
 * @param isContested true if a live gateway has other files of this model
 * @param known versions that running requests are charged by: a database that has lost one gets it back unchanged
 */
export async function syncModels(
  options: SyncOptions,
  priced: readonly Priced[],
  isContested: (modelId: string) => boolean,
  known: readonly PriceVersion[] = [],
): Promise<SyncedModels> {
  const { db, clock } = options;
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
    // The row locks make a second starting gateway wait, so that it sees these versions and adds none.
    const rows = await tx.select().from(models).where(inArray(models.id, ids)).orderBy(models.id).for('update');
    const lost = known.filter(({ modelId }) => ids.includes(modelId));
    if (lost.length > 0) await tx.insert(priceVersions).values(lost).onConflictDoNothing();
    const pending = new Set<string>();
    const prices = await keepPrices(tx, { priced, isContested, pending }, options);
    const ofModels = { priced, rows, now: firstSeenAt, isContested, pending };
    return {
      createdAt: new Map(rows.map((row) => [row.id, Math.floor(row.firstSeenAt.getTime() / 1000)])),
      prices,
      bases: createAdapterBases(await keepBases(tx, ofModels)),
      pending: [...pending],
    };
  });
}

/** Reads the versions in effect. */
export async function readVersions({ orm }: Db): Promise<Versions> {
  return { prices: await newestPrices(orm), bases: createAdapterBases(await readBases(orm)) };
}

/** Returns a text that changes whenever a version is added or lost. */
export async function readVersionsMark({ sql }: Db): Promise<string> {
  const [row] = await sql<{ mark: string }[]>`select concat_ws(' ',
    (select count(*) || ' ' || max(effective_from) from price_versions),
    (select count(*) || ' ' || max(effective_from) from adapter_bases)) as mark`;
  return row?.mark ?? '';
}

interface KnownPrices {
  readonly priced: readonly Priced[];
  readonly isContested: (modelId: string) => boolean;
  /** Collects the ids of models whose price or base is not written yet. */
  readonly pending: Set<string>;
}

/** Adds new prices. @returns the versions in effect then */
async function keepPrices(
  tx: Transaction,
  { priced, isContested, pending }: KnownPrices,
  { clock, onPriceChanged }: SyncOptions,
): Promise<ReadonlyMap<string, PriceVersion>> {
  const prices = await newestPrices(tx);
  const changes = priced.flatMap((model) => priceChanges(model, prices, clock));
  const isWritten = ({ old, new: { modelId } }: NewPrice): boolean => old === undefined || !isContested(modelId);
  const written = changes.filter(isWritten);
  for (const change of changes) if (!isWritten(change)) pending.add(change.new.modelId);
  if (written.length > 0) await tx.insert(priceVersions).values(written.map((change) => change.new));
  for (const { old, new: version, file } of written) {
    prices.set(versionKey(version.modelId, version.tier), version);
    if (old !== undefined) await onPriceChanged?.(tx, { old, new: version, file });
  }
  return prices;
}

interface NewPrice {
  readonly old: PriceVersion | undefined;
  readonly new: PriceVersion;
  readonly file: string;
}

function priceChanges(model: Priced, prices: ReadonlyMap<string, PriceVersion>, clock: Clock): NewPrice[] {
  return serviceTiers.flatMap((tier): NewPrice[] => {
    const pricing = pricingOf(model, tier);
    const old = prices.get(versionKey(model.id, tier));
    if (pricing === null || (old !== undefined && samePrice(old, pricing))) return [];
    return [{ old, new: newVersion({ modelId: model.id, tier, pricing, old }, clock), file: model.file }];
  });
}

interface KnownModels extends KnownPrices {
  readonly rows: readonly (typeof models.$inferSelect)[];
  /** Time of this sync, which is the first-seen time of models that no file named before. */
  readonly now: Date;
}

async function readBases(orm: Reads): Promise<readonly DatedBase[]> {
  return orm.select().from(adapterBases).orderBy(adapterBases.adapterId, adapterBases.effectiveFrom);
}

/** Adds new bases. @returns all bases, oldest first */
async function keepBases(tx: Transaction, { priced, rows, now, isContested, pending }: KnownModels) {
  const known = await readBases(tx);
  const newest = new Map(known.map((version) => [version.adapterId, version]));
  const firstSeen = new Map(rows.map(({ id, firstSeenAt }) => [id, firstSeenAt]));
  const added = priced.flatMap(({ id: adapterId, baseId }): DatedBase[] => {
    const last = newest.get(adapterId);
    if ((last?.baseId ?? null) === baseId) return [];
    const own: DatedBase = { adapterId, baseId: null, effectiveFrom: firstSeen.get(adapterId) ?? new Date(0) };
    const before = last ?? own;
    // A model that the files name for the first time never had another base.
    if (last === undefined && own.effectiveFrom >= now) return [{ ...own, baseId }];
    if (isContested(adapterId)) {
      pending.add(adapterId);
      return [];
    }
    const effectiveFrom = new Date(Math.max(now.getTime(), before.effectiveFrom.getTime() + 1));
    const version = { adapterId, baseId, effectiveFrom };
    return last === undefined ? [own, version] : [version];
  });
  if (added.length > 0) await tx.insert(adapterBases).values(added);
  return [...known, ...added];
}

export const versionKey = (modelId: string, tier: ServiceTier): string => `${tier} ${modelId}`;

type Reads = Pick<Transaction, 'select' | 'selectDistinctOn'>;

export function pricingOf({ pricing, flexPricing }: Priced, tier: ServiceTier): EnginePricing | null {
  return tier === 'flex' ? flexPricing : pricing;
}

/** Returns the newest price of each model and tier, by `versionKey`. */
async function newestPrices(orm: Reads): Promise<Map<string, PriceVersion>> {
  const { modelId, tier, effectiveFrom, id } = priceVersions;
  const rows = await orm
    .selectDistinctOn([modelId, tier])
    .from(priceVersions)
    .orderBy(modelId, tier, desc(effectiveFrom), desc(id));
  return new Map(rows.map((row) => [versionKey(row.modelId, row.tier), { ...row, currency: 'USD' }]));
}

/** Returns null if there is no such version. */
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

interface VersionFields {
  readonly modelId: string;
  readonly tier: ServiceTier;
  readonly pricing: EnginePricing;
  readonly old: PriceVersion | undefined;
}

function newVersion({ modelId, tier, pricing, old }: VersionFields, clock: Clock): PriceVersion {
  // If the clock stepped back, the new version must still be later than the one before.
  const effectiveFromMs = Math.max(clock.now(), (old?.effectiveFrom.getTime() ?? 0) + 1);
  return { id: uuidv7(), modelId, tier, ...pricing, currency: 'USD', effectiveFrom: new Date(effectiveFromMs) };
}
