import type { EngineDefinition, LoraAdapter, TaskType } from './engine-definition.ts';
import type { FileProblem } from './zod-problems.ts';

/**
 * Checks of fallbacks, after all files are read. Fallbacks of a fallback are ignored, so models may name each other.
 */

/** Task types that can answer on the routes of another task type. */
const standsIn: Readonly<Record<TaskType, readonly TaskType[]>> = {
  chat: ['chat', 'vision', 'code'],
  vision: ['chat', 'vision', 'code'],
  code: ['chat', 'vision', 'code'],
  completion: ['completion', 'chat', 'vision', 'code'],
  embedding: ['embedding'],
  rerank: ['rerank'],
};

/** True if a model of the type `other` can answer on the routes of the type `asked`. */
export const answersFor = (asked: TaskType, other: TaskType): boolean => standsIn[asked].includes(other);

interface NamedModel {
  readonly id: string;
  readonly engine: EngineDefinition;
}

type Names = ReadonlyMap<string, NamedModel>;

export interface FallbackProblem extends FileProblem {
  readonly engine: EngineDefinition;
}

/**
 * Reports fallbacks that do not exist, have an incompatible task, or would be useless.
 * @param isWhole true if there are no other engines, so that an unknown name is a problem
 */
export function fallbackProblems(engines: readonly EngineDefinition[], isWhole: boolean): FallbackProblem[] {
  const names = namesOf(engines);
  return engines.flatMap((engine) => {
    const adapters = engine.lora.map((adapter, index) => ({ model: adapter, at: ['lora', index] }));
    return [{ model: engine, at: [] as (string | number)[] }, ...adapters].flatMap(({ model, at }) => {
      return model.fallbacks.flatMap((name, index) => {
        const message = problemOf(name, index, { model, engine, names, isWhole });
        return message === null ? [] : [{ engine, path: [...at, 'fallbacks', index], message }];
      });
    });
  });
}

interface NamedBy {
  readonly model: EngineDefinition | LoraAdapter;
  readonly engine: EngineDefinition;
  readonly names: Names;
  readonly isWhole: boolean;
}

function problemOf(name: string, index: number, { model, engine, names, isWhole }: NamedBy): string | null {
  const found = names.get(name.toLowerCase());
  if (found === undefined) return isWhole ? `no engine file has a model ${JSON.stringify(name)}` : null;
  if (found.id === model.id) return 'a model cannot be its own fallback';
  if (found.engine === engine) return `${found.id} is served by the same engine, so it fails when this model fails`;
  if (model.fallbacks.findIndex((other) => names.get(other.toLowerCase())?.id === found.id) < index) {
    return `${found.id} is already listed`;
  }
  const { taskType } = found.engine;
  if (answersFor(engine.taskType, taskType)) return null;
  return `${found.id} has task_type ${taskType} and cannot serve ${engine.taskType} requests`;
}

/** Returns the engines with fallbacks named by id. Names that no engine has stay. */
export function withFallbackIds(engines: readonly EngineDefinition[]): readonly EngineDefinition[] {
  const names = namesOf(engines);
  const ids = (fallbacks: readonly string[]): string[] =>
    fallbacks.map((name) => names.get(name.toLowerCase())?.id ?? name);
  return engines.map((engine) => ({
    ...engine,
    fallbacks: ids(engine.fallbacks),
    lora: engine.lora.map((adapter) => ({ ...adapter, fallbacks: ids(adapter.fallbacks) })),
  }));
}

/**
 * Indexes models by id, name, alias and repository, in lower case. A repository of several models names the first one: an
 * engine of a run comes after the files, and takes no fallback from them.
 */
function namesOf(engines: readonly EngineDefinition[]): Names {
  const named = engines.flatMap((engine) =>
    [engine, ...engine.lora].flatMap(({ id, name, aliases, huggingFaceId }) =>
      [id, name, ...aliases, huggingFaceId ?? id].map((one) => [one.toLowerCase(), { id, engine }] as const),
    ),
  );
  return new Map(named.toReversed());
}
