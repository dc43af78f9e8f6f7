import { isDeepStrictEqual } from 'node:util';
import type { EngineDefinition, RequestChanges } from '#core/catalog/files/files.ts';
import type { Model, ShownEngine } from './model.ts';

/** The models of the files in effect, with what their engines show of themselves. */
export interface ModelList {
  /** Replaces the files. @param createdAtOf Unix seconds at which the catalog first saw an id */
  take(engines: readonly EngineDefinition[], createdAtOf: (id: string) => number): void;
  /** See `setShown` of the catalog. */
  setShown(engineId: string, shown: ShownEngine): void;
  find(name: string): Model | undefined;
  /** Returns the changes that engine files demand, by lower-case name; models without changes are left out. */
  requestChanges(): ReadonlyMap<string, RequestChanges>;
  /** Returns all models, ordered by id. */
  list(): readonly Model[];
}

export function createModelList(): ModelList {
  const shown = new Map<string, ShownEngine>();
  let models: readonly Model[] = [];
  let byName: ReadonlyMap<string, Model> = new Map();
  let changes: ReadonlyMap<string, RequestChanges> = new Map();

  function replace(next: readonly Model[]): void {
    models = next.map((model) => asShown(model, shown.get(model.engine.id)));
    byName = indexByName(models);
    changes = new Map([...byName].flatMap(([name, { engine }]) => changesOf(name, engine)));
  }

  return {
    take: (engines, createdAtOf) => replace(toModels(engines, createdAtOf)),
    setShown(engineId, next) {
      if (isDeepStrictEqual(shown.get(engineId), next)) return;
      shown.set(engineId, next);
      replace(models);
    },
    find: (name) => byName.get(name.toLowerCase()),
    requestChanges: () => changes,
    list: () => models,
  };
}

/** Returns a model with the version that its engine shows, and with the kind, if the engine's file names none. */
function asShown(model: Model, shown: ShownEngine | undefined): Model {
  if (shown === undefined) return model;
  const { engine } = model;
  const { driver } = engine;
  const { version, kind } = shown;
  const findsKind = driver.type === 'external' && driver.findsKind;
  return { ...model, version, engine: findsKind ? { ...engine, kind } : engine };
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
      const createdAt = createdAtOf(id);
      return { id, name, aliases, huggingFaceId, ownedBy, createdAt, ...shared, version: null, adapter, fallbacks };
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
