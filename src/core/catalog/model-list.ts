import type { EngineDefinition, EngineKind, RequestChanges } from '#core/catalog/files/files.ts';
import type { Model } from './model.ts';

/** The models of the files in effect, with the kinds that external engines show. */
export interface ModelList {
  /** Replaces the files. @param createdAtOf Unix seconds at which the catalog first saw an id */
  take(engines: readonly EngineDefinition[], createdAtOf: (id: string) => number): void;
  /** See `setKind` of the catalog. */
  setKind(engineId: string, kind: EngineKind): void;
  find(name: string): Model | undefined;
  /** Returns the changes that engine files demand, by lower-case name; models without changes are left out. */
  requestChanges(): ReadonlyMap<string, RequestChanges>;
  /** Returns all models, ordered by id. */
  list(): readonly Model[];
}

export function createModelList(): ModelList {
  const kinds = new Map<string, EngineKind>();
  let models: readonly Model[] = [];
  let byName: ReadonlyMap<string, Model> = new Map();
  let changes: ReadonlyMap<string, RequestChanges> = new Map();

  function replace(next: readonly Model[]): void {
    models = next.map((model) => ({ ...model, engine: ofKind(model.engine, kinds.get(model.engine.id)) }));
    byName = indexByName(models);
    changes = new Map([...byName].flatMap(([name, { engine }]) => changesOf(name, engine)));
  }

  return {
    take: (engines, createdAtOf) => replace(toModels(engines, createdAtOf)),
    setKind(engineId, kind) {
      if (kinds.get(engineId) === kind) return;
      kinds.set(engineId, kind);
      replace(models);
    },
    find: (name) => byName.get(name.toLowerCase()),
    requestChanges: () => changes,
    list: () => models,
  };
}

/** Returns an engine with the kind that it shows, if its file names none. */
function ofKind(engine: EngineDefinition, kind: EngineKind | undefined): EngineDefinition {
  const { driver } = engine;
  return kind === undefined || driver.type !== 'external' || !driver.findsKind ? engine : { ...engine, kind };
}

function changesOf(name: string, { requestChanges }: EngineDefinition): [string, RequestChanges][] {
  const { defaults, overrides } = requestChanges;
  return Object.keys({ ...defaults, ...overrides }).length === 0 ? [] : [[name, requestChanges]];
}

/** Returns the models of engines and their adapters, ordered by id. */
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

/**
 * Indexes models by lower-case name. A repository's name resolves only if one model has it; ids, names and aliases are
 * unique.
 */
function indexByName(models: readonly Model[]): ReadonlyMap<string, Model> {
  const named = models.flatMap((model) => [model.id, model.name, ...model.aliases].map((name) => ({ name, model })));
  const repositories = Map.groupBy(models, ({ huggingFaceId, id }) => (huggingFaceId ?? id).toLowerCase());
  const sole = [...repositories].flatMap(([name, [model, ...others]]) =>
    model === undefined || others.length > 0 ? [] : [{ name, model }],
  );
  return new Map([...sole, ...named].map(({ name, model }) => [name.toLowerCase(), model]));
}
