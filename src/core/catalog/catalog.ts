import { type AdapterBases, createAdapterBases } from './adapter-bases.ts';
import type { EngineDefinition, ServiceTier, TaskType } from './engine-definition.ts';
import type { Model, PriceVersion } from './model.ts';
import { offerText } from './offers.ts';
import {
  type Priced,
  pricedModels,
  pricingOf,
  readPriceVersion,
  readVersions,
  readVersionsMark,
  type SyncOptions,
  syncModels,
  versionKey,
  type Versions,
} from './sync.ts';

export type { AdapterBases } from './adapter-bases.ts';
export { findFlag } from './find-flag.ts';
export { fillReferences } from './process-command-checks.ts';
export {
  type DockerHostSettings,
  type DockerHostsOptions,
  type DockerHostsResult,
  type GpuAccess,
  loadDockerHosts,
  type SwarmSettings,
} from './docker-hosts-file.ts';
export { type DockerRun, onlyDockerRunWords, parseDockerRun } from './docker-run.ts';
export {
  type AllowableField,
  allowableFields,
  type Canary,
  type ContainerDriverSettings,
  type EngineDefinition,
  type EngineGroup,
  type EngineKind,
  type EnginePricing,
  type ExternalDriverSettings,
  type GpuNeed,
  type LoraAdapter,
  type ProcessDriverSettings,
  type ServiceTier,
  type StructuredOutputBounds,
  type TaskType,
  taskTypes,
  type VolumeMount,
} from './engine-definition.ts';
export { type EngineFileProblem, formatEngineFileProblem } from './engine-file-problem.ts';
export { engineJsonSchema } from './engine-file-schema.ts';
export {
  checkEngineText,
  type EngineFilesOptions,
  type EngineFilesResult,
  loadEngineFileList,
  loadEngineFiles,
} from './engine-files.ts';
export {
  createEngineReload,
  type EngineFilesState,
  type EngineReload,
  type EngineReloadResult,
} from './engine-reload.ts';
export { answersFor } from './fallback-checks.ts';
export { parseLength } from './vllm-flag-checks.ts';
export { volumeProblem } from './host-access-checks.ts';
export type { Model, PriceVersion } from './model.ts';
export { pricesSql } from './all-prices.ts';
export { looksSecret, namesSecret } from './secrets.ts';
export { engineFingerprints, priceText } from './offers.ts';
export { decodeDefinition, encodeDefinition } from './stored-definition.ts';
export type { PriceChange } from './sync.ts';
export { readYaml, type YamlOptions } from './yaml-source.ts';

export interface Catalog {
  /** Takes the files of the start: makes their models known, and their prices where no other gateway differs. */
  sync(): Promise<void>;
  /**
   * Makes the models of files that were read again known to the database, with the prices of those that had none.
   * @returns makes these files the catalog's, all at once; until then it knows the ones before
   */
  prepare(engines: readonly EngineDefinition[]): Promise<() => void>;
  /**
   * Writes prices and bases of the files that differ from those that apply, each as a new version, unless a live
   * gateway has other files of that model. To be called after `prepare`, once this gateway has published its files.
   * @returns whether any was written
   */
  settle(): Promise<boolean>;
  /**
   * Writes again what a database has lost of models and prices, and reads what it has.
   * @returns false where other files were read meanwhile, and nothing was taken over
   */
  recover(): Promise<boolean>;
  /** Reads what other gateways have written. */
  refresh(): Promise<void>;
  /** Ids of models whose file has another price or base than the one that applies. */
  pending(): readonly string[];
  /** The prices and bases of the files by model, as text for operators: what gateways compare. */
  offers(): Readonly<Record<string, string>>;
  /** By catalog id, display name, alias or Hugging Face id, without regard to case; disabled models too. */
  find(name: string): Model | undefined;
  /** Every model of the files, disabled ones too, in the order of their ids. */
  list(): readonly Model[];
  /** The enabled models of one task type, in the order of their ids. */
  byTask(taskType: TaskType): readonly Model[];
  /** Which models LoRA adapters were served with, of all that files ever named. */
  bases(): AdapterBases;
  /** The newest version for a tier, `default` when absent, on every gateway; undefined when the file here has none. */
  price(modelId: string, tier?: ServiceTier): PriceVersion | undefined;
  /** A price that is or was in force, by the id that records have of it; null for none. */
  priceVersion(id: string): Promise<PriceVersion | null>;
}

export interface CatalogOptions extends SyncOptions {
  readonly engines: readonly EngineDefinition[];
  /** Reads which gateways live. @returns whether one of them has other files of a model; none where absent */
  readonly readContested?: () => Promise<(modelId: string) => boolean>;
}

/** The versions that apply, and all by which requests were priced here: PostgreSQL may lose some. */
function createKnownVersions() {
  let versions: Versions = { prices: new Map(), bases: createAdapterBases([]) };
  const used = new Map<string, PriceVersion>();
  return {
    now: () => versions,
    used: () => [...used.values()],
    /** A price that PostgreSQL has lost applies until it is written again, or the next one is read. */
    take(next: Versions): void {
      versions = { ...next, prices: new Map([...versions.prices, ...next.prices]) };
      for (const version of next.prices.values()) used.set(version.id, version);
    },
  };
}

/** The models of a set of engine files. Until `sync` has run once, creation times are now and nothing has a price. */
export function createCatalog(options: CatalogOptions): Catalog {
  const { db, clock, readContested = () => Promise.resolve(() => false) } = options;
  const startedAt = Math.floor(clock.now() / 1000);
  let models: readonly Model[] = [];
  let byName: ReadonlyMap<string, Model> = new Map();
  let priced: ReadonlyMap<string, Priced> = new Map();
  const versions = createKnownVersions();
  let pending: readonly string[] = [];
  let mark = '';
  take(options.engines, () => startedAt);

  function take(engines: readonly EngineDefinition[], createdAtOf: (id: string) => number): void {
    models = toModels(engines, createdAtOf);
    byName = indexByName(models);
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
    find: (name) => byName.get(name.toLowerCase()),
    list: () => models,
    byTask: (taskType) => models.filter((model) => model.enabled && model.taskType === taskType),
    bases: () => versions.now().bases,
    price(modelId, tier = 'default') {
      const model = priced.get(modelId);
      if (model === undefined || pricingOf(model, tier) === null) return undefined;
      return versions.now().prices.get(versionKey(modelId, tier));
    },
    priceVersion: (id) => readPriceVersion(db, id),
  };
}

/** The models of engines and their adapters, in the order of their ids. */
function toModels(engines: readonly EngineDefinition[], createdAtOf: (id: string) => number): Model[] {
  const models = engines.flatMap((engine) => {
    const { taskType, contextLength, enabled } = engine;
    const shared = { taskType, contextLength, enabled, engine };
    return [null, ...engine.lora].map((adapter): Model => {
      const { id, name, aliases, huggingFaceId, ownedBy, fallbacks } = adapter ?? engine;
      return { id, name, aliases, huggingFaceId, ownedBy, createdAt: createdAtOf(id), ...shared, adapter, fallbacks };
    });
  });
  return models.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

/** The name of a repository resolves only where one model has it; ids, names and aliases are each of one model. */
function indexByName(models: readonly Model[]): ReadonlyMap<string, Model> {
  const named = models.flatMap((model) => [model.id, model.name, ...model.aliases].map((name) => ({ name, model })));
  const repositories = Map.groupBy(models, ({ huggingFaceId, id }) => (huggingFaceId ?? id).toLowerCase());
  const sole = [...repositories].flatMap(([name, [model, ...others]]) =>
    model === undefined || others.length > 0 ? [] : [{ name, model }],
  );
  return new Map([...sole, ...named].map(({ name, model }) => [name.toLowerCase(), model]));
}
