import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { formatDecimal, MICRO_DIGITS } from '#base/money.ts';
import {
  encodeDefinition,
  type EngineDefinition,
  type EnginePricing,
  type RequestChanges,
  type ServiceTier,
  type TaskType,
} from '#core/catalog/files/files.ts';
import { type AdapterBases, createAdapterBases } from './adapter-bases.ts';
import type { Model, PriceVersion, ShownEngine } from './model.ts';
import { createModelList } from './model-list.ts';
import {
  type Priced,
  pricedModels,
  pricingOf,
  readPriceVersion,
  readVersions,
  readVersionsMark,
  syncModels,
  type SyncOptions,
  versionKey,
  type Versions,
} from './sync.ts';

export type { AdapterBases } from './adapter-bases.ts';
export {
  addEngineTexts,
  allowableFields,
  answersFor,
  checkEngineText,
  clusterEngineText,
  decodeDefinition,
  encodeDefinition,
  engineJsonSchema,
  fillReferences,
  findFlag,
  formatEngineFileProblem,
  givesParallelSize,
  isRequestOverride,
  loadDockerHosts,
  loadEngineFileList,
  loadEngineFiles,
  looksSecret,
  namesSecret,
  onlyDockerRunWords,
  parseDockerRun,
  parseLength,
  readYaml,
  scheduleStateAt,
  taskTypes,
  type AllowableField,
  type Canary,
  type ContainerDriverSettings,
  type DockerHostSettings,
  type DockerHostsOptions,
  type DockerHostsResult,
  type DockerRun,
  type EngineDefinition,
  type EngineFileProblem,
  type EngineFilesOptions,
  type EngineFilesResult,
  type EngineGroup,
  type EngineKind,
  type EnginePricing,
  type EngineText,
  type ExternalDriverSettings,
  type GpuAccess,
  type GpuNeed,
  type LoraAdapter,
  type ProcessDriverSettings,
  type RequestChanges,
  type ReadFile,
  type ScheduleEntry,
  type ScheduleState,
  type ServiceTier,
  type StructuredOutputBounds,
  type SwarmSettings,
  type TaskType,
  type UnservedTools,
  type VolumeMount,
  type YamlOptions,
  volumeProblem,
} from '#core/catalog/files/files.ts';
export { createEngineFolder, type EngineFolder } from './engine-folder.ts';
export {
  createEngineReload,
  type EngineFilesState,
  type EngineReload,
  type EngineReloadResult,
} from './engine-reload.ts';
export type { Model, PriceVersion, ShownEngine } from './model.ts';
export { isTriedVllm, isVllmSince } from './vllm-versions.ts';
export type { PriceChange } from './sync.ts';

/** Text forms of files' contents, which gateways compare with each other. */

/** Returns the prices and the base of a model, USD per million tokens: "input 0.1, cached 0.05, output 0.4". */
function offerText({ pricing, flexPricing, baseId }: Priced): string {
  const parts = [
    pricing === null ? 'no price' : priceText(pricing),
    ...(flexPricing === null ? [] : [`flex ${priceText(flexPricing)}`]),
    ...(baseId === null ? [] : [`adapter of ${baseId}`]),
  ];
  return parts.join('; ');
}

export function priceText(pricing: EnginePricing): string {
  const usd = (value: bigint): string => formatDecimal(value, MICRO_DIGITS);
  const { inputPerMTokMicroUsd, cachedInputPerMTokMicroUsd, outputPerMTokMicroUsd } = pricing;
  return `input ${usd(inputPerMTokMicroUsd)}, cached ${usd(cachedInputPerMTokMicroUsd)}, output ${usd(outputPerMTokMicroUsd)}`;
}

/**
 * Returns a fingerprint of each engine file as the gateway reads it, with the variable of `image` filled in, by engine
 * id.
 * @param parentFolder holds the engines folder; its location does not change the fingerprints
 */
export function engineFingerprints(
  engines: readonly EngineDefinition[],
  parentFolder: string,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    engines.map((engine) => {
      const text = encodeDefinition({ ...engine, file: basename(engine.file) }).replaceAll(parentFolder, '');
      return [engine.id, createHash('sha256').update(text).digest('hex').slice(0, 12)];
    }),
  );
}

/** Selects all price versions; prices are in pico-dollars per token. */
export const pricesSql = `select id, model_id, tier, input_per_mtok_micro_usd as input_price,
    cached_input_per_mtok_micro_usd as cached_price, output_per_mtok_micro_usd as output_price, currency from price_versions`;

export interface Catalog {
  /**
   * Applies the files of the start: stores their models, and their prices unless another gateway has different ones.
   */
  sync(): Promise<void>;
  /**
   * Stores the models of reloaded files in the database, and the prices of models that had none.
   * @returns a function that switches the catalog to these files in one step; until then the previous files apply
   */
  prepare(engines: readonly EngineDefinition[]): Promise<() => void>;
  /**
   * Writes prices and bases of the files that differ from the current ones, each as a new version, unless a live
   * gateway has different files for the model. Call this after `prepare`, once this gateway has published its files.
   * @returns true if any was written
   */
  settle(): Promise<boolean>;
  /**
   * Rewrites models and prices that the database has lost, and reads what the database has.
   * @returns false if other files were loaded in the meantime, and nothing was applied
   */
  recover(): Promise<boolean>;
  /** Reads versions that other gateways have written. */
  refresh(): Promise<void>;
  /** Returns the ids of models whose file has another price or base than the one in effect. */
  pending(): readonly string[];
  /** Returns the prices and bases of the files by model, as text that gateways compare and operators read. */
  offers(): Readonly<Record<string, string>>;
  /** Sets what an engine shows of itself. */
  setShown(engineId: string, shown: ShownEngine): void;
  /** Finds a model by catalog id, display name, alias or Hugging Face id, ignoring case; disabled models too. */
  find(name: string): Model | undefined;
  /** Returns the changes of requests that engine files demand, by lower-case name of the model. */
  requestChanges(): ReadonlyMap<string, RequestChanges>;
  /** Returns every model of the files, including disabled ones, ordered by id. */
  list(): readonly Model[];
  /** Returns the enabled models of one task type, ordered by id. */
  byTask(taskType: TaskType): readonly Model[];
  /** Returns the models that LoRA adapters were served with, for all adapters that files ever named. */
  bases(): AdapterBases;
  /**
   * Returns the newest version on all gateways for a tier (`default` if absent); undefined if the file here has no
   * price for the tier.
   */
  price(modelId: string, tier?: ServiceTier): PriceVersion | undefined;
  /** Returns a current or former price by the id that records store; null if there is none. */
  priceVersion(id: string): Promise<PriceVersion | null>;
}

export interface CatalogOptions extends SyncOptions {
  readonly engines: readonly EngineDefinition[];
  /**
   * Reads which gateways are live. If absent, no model is contested. @returns true for a model of which a live gateway
   * has different files
   */
  readonly readContested?: () => Promise<(modelId: string) => boolean>;
}

/** Keeps the current versions, and all prices that requests were charged by here: PostgreSQL may lose some. */
function createKnownVersions() {
  let versions: Versions = { prices: new Map(), bases: createAdapterBases([]) };
  const used = new Map<string, PriceVersion>();
  return {
    now: () => versions,
    used: () => [...used.values()],
    /**
     * Applies newly read versions. A price that PostgreSQL has lost stays in effect until it is written again or its
     * successor is read.
     */
    take(next: Versions): void {
      versions = { ...next, prices: new Map([...versions.prices, ...next.prices]) };
      for (const version of next.prices.values()) used.set(version.id, version);
    },
  };
}

/**
 * Creates the catalog of a set of engine files. Before the first `sync`, creation times are now and nothing has a
 * price.
 */
export function createCatalog(options: CatalogOptions): Catalog {
  const { db, clock, readContested = () => Promise.resolve(() => false) } = options;
  const startedAt = Math.floor(clock.now() / 1000);
  const models = createModelList();
  let priced: ReadonlyMap<string, Priced> = new Map();
  const versions = createKnownVersions();
  let pending: readonly string[] = [];
  let mark = '';
  take(options.engines, () => startedAt);

  function take(engines: readonly EngineDefinition[], createdAtOf: (id: string) => number): void {
    models.take(engines, createdAtOf);
    priced = new Map(pricedModels(engines).map((model) => [model.id, model]));
  }

  async function prepare(next: readonly EngineDefinition[]): Promise<() => void> {
    const synced = await syncModels(options, pricedModels(next), () => true);
    return () => {
      take(next, (id) => synced.createdAt.get(id) ?? startedAt);
      versions.take(synced);
      pending = synced.pending;
    };
  }

  async function recover(): Promise<boolean> {
    const of = priced;
    const synced = await syncModels(options, [...of.values()], await readContested(), versions.used());
    if (of !== priced) return false;
    versions.take(synced);
    pending = synced.pending;
    return true;
  }

  async function settle(): Promise<boolean> {
    if (pending.length === 0) return false;
    const before = pending.length;
    return (await recover()) && pending.length < before;
  }

  return {
    prepare,
    settle,
    recover,
    async sync() {
      const apply = await prepare(options.engines);
      apply();
      await settle();
    },
    async refresh() {
      const now = await readVersionsMark(db);
      if (now === mark) return;
      versions.take(await readVersions(db));
      mark = now;
    },
    pending: () => pending,
    offers: () => Object.fromEntries([...priced.values()].map((model) => [model.id, offerText(model)])),
    setShown: (engineId, shown) => models.setShown(engineId, shown),
    find: (name) => models.find(name),
    requestChanges: () => models.requestChanges(),
    list: () => models.list(),
    byTask: (taskType) => models.list().filter((model) => model.enabled && model.taskType === taskType),
    bases: () => versions.now().bases,
    price(modelId, tier = 'default') {
      const model = priced.get(modelId);
      if (model === undefined || pricingOf(model, tier) === null) return undefined;
      return versions.now().prices.get(versionKey(modelId, tier));
    },
    priceVersion: (id) => readPriceVersion(db, id),
  };
}
