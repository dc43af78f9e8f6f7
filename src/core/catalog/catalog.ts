import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { type AdapterBases, createAdapterBases } from './adapter-bases.ts';
import type { EngineDefinition, ServiceTier, TaskType } from './engine-definition.ts';
import type { Model, PriceVersion } from './model.ts';
import { type PriceTable, readPriceVersion, syncModels } from './sync.ts';

export type { AdapterBases } from './adapter-bases.ts';
export { findFlag, fillReferences } from './process-command-checks.ts';
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
export { volumeProblem } from './host-access-checks.ts';
export type { Model, PriceVersion } from './model.ts';
export { pricesSql } from './all-prices.ts';
export { looksSecret, namesSecret } from './secrets.ts';
export { decodeDefinition, encodeDefinition } from './stored-definition.ts';
export { readYaml, type YamlOptions } from './yaml-source.ts';

export interface Catalog {
  /** Writes models and prices to the database; a new price version only where prices differ from the newest. */
  sync(): Promise<void>;
  /**
   * Writes models and prices of files that were read again, as `sync` does.
   * @returns makes these files the catalog's, all at once; until then it knows the ones before
   */
  prepare(engines: readonly EngineDefinition[]): Promise<() => void>;
  /** By catalog id, display name, alias or Hugging Face id, without regard to case; disabled models too. */
  find(name: string): Model | undefined;
  /** Every model of the files, disabled ones too, in the order of their ids. */
  list(): readonly Model[];
  /** The enabled models of one task type, in the order of their ids. */
  byTask(taskType: TaskType): readonly Model[];
  /** Which models LoRA adapters were served with, of all that files ever named. */
  bases(): AdapterBases;
  /** The price in force for a tier, `default` when absent; undefined when the engine's file has none. */
  price(modelId: string, tier?: ServiceTier): PriceVersion | undefined;
  /** A price that is or was in force, by the id that records have of it; null for none. */
  priceVersion(id: string): Promise<PriceVersion | null>;
}

export interface CatalogOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly engines: readonly EngineDefinition[];
}

/** The models of a set of engine files. Until `sync` has run once, creation times are now and nothing has a price. */
export function createCatalog({ db, clock, engines }: CatalogOptions): Catalog {
  const startedAt = Math.floor(clock.now() / 1000);
  let models: readonly Model[] = toModels(engines, () => startedAt);
  let byName = indexByName(models);
  let prices: PriceTable = new Map();
  let bases = createAdapterBases([]);

  async function prepare(next: readonly EngineDefinition[]): Promise<() => void> {
    const synced = await syncModels(db, clock, next);
    const made = toModels(next, (id) => synced.createdAt.get(id) ?? startedAt);
    const names = indexByName(made);
    return () => {
      models = made;
      byName = names;
      prices = synced.prices;
      bases = synced.bases;
    };
  }

  return {
    prepare,
    async sync() {
      const apply = await prepare(engines);
      apply();
    },
    find: (name) => byName.get(name.toLowerCase()),
    list: () => models,
    byTask: (taskType) => models.filter((model) => model.enabled && model.taskType === taskType),
    bases: () => bases,
    price: (modelId, tier = 'default') => prices.get(modelId)?.[tier],
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

function indexByName(models: readonly Model[]): ReadonlyMap<string, Model> {
  const names = models.flatMap((model) =>
    [model.id, model.name, ...model.aliases, model.huggingFaceId ?? model.id].map((name) => ({ name, model })),
  );
  return new Map(names.map(({ name, model }) => [name.toLowerCase(), model]));
}
