import { z } from 'zod';
import { answersFor, type TaskType } from '#core/catalog/catalog.ts';
import type { EngineDraft, Notes } from './draft.ts';

/**
 * litellm's fallbacks, https://docs.litellm.ai/docs/proxy/reliability: by the name of a model, or `*` for models
 * without fallbacks of their own.
 */

const target = z.union([z.string(), z.looseObject({ model: z.string() }).transform(({ model }) => model)]);
const settings = z.looseObject({
  fallbacks: z.array(z.record(z.string(), z.array(target))).nullish(),
  default_fallbacks: z.array(target).nullish(),
});

/** Most fallbacks of an engine file. */
const fallbacksMax = 8;
const everyModel = '*';

/** Gives every engine the fallbacks of its model. @param given settings that may have some; earlier settings win */
export function withFallbacks(
  drafts: readonly EngineDraft[],
  given: readonly unknown[],
  notes: Notes,
): readonly EngineDraft[] {
  const wanted = readWanted(given, notes);
  if (wanted.size === 0) return drafts;
  notes.add(null, 'fallbacks: imported; they answer only requests with the header x-headgate-allow-fallback: true');
  const sources = new Set(drafts.map(({ source }) => source));
  for (const model of wanted.keys()) {
    if (model !== everyModel && !sources.has(model)) notes.add(null, `fallbacks: the model ${model} does not exist`);
  }
  return drafts.map((draft) => {
    const models = wanted.get(draft.source) ?? wanted.get(everyModel) ?? [];
    const ids = idsOf(
      models.filter((model) => model !== draft.source),
      draft,
      { drafts, notes },
    );
    return ids.length === 0 ? draft : { ...draft, fields: insert(draft.fields, ids) };
  });
}

/** Returns the wanted fallbacks by model. A model's own list replaces the list for all models. */
function readWanted(given: readonly unknown[], notes: Notes): ReadonlyMap<string, readonly string[]> {
  const wanted = new Map<string, readonly string[]>();
  const want = (model: string, fallbacks: readonly string[]): void => {
    if (!wanted.has(model)) wanted.set(model, fallbacks);
  };
  for (const one of given) {
    const parsed = settings.safeParse(one ?? {});
    if (!parsed.success) notes.add(null, 'fallbacks: expected a list of models, each with a list of models');
    const { fallbacks, default_fallbacks: usual } = parsed.data ?? {};
    for (const [model, list] of (fallbacks ?? []).flatMap((entry) => Object.entries(entry))) want(model, list);
    if ((usual ?? []).length > 0) want(everyModel, usual ?? []);
  }
  return wanted;
}

interface Among {
  readonly drafts: readonly EngineDraft[];
  readonly notes: Notes;
}

/** Returns ids of the engines of these models that can answer in place of the engine. */
function idsOf(models: readonly string[], { source, fields }: EngineDraft, { drafts, notes }: Among): string[] {
  const ids = models.flatMap((model) => {
    const found = drafts.filter((draft) => draft.source === model);
    const fit = found.filter((draft) => answersFor(taskOf(fields), taskOf(draft.fields)));
    if (found.length === 0) notes.add(source, `fallbacks: not imported; the model ${model} does not exist`);
    else if (fit.length === 0) notes.add(source, `fallbacks: not imported; the model ${model} has a different task`);
    return fit.map((draft) => String(draft.fields['id']));
  });
  const distinct = [...new Set(ids)];
  if (distinct.length > fallbacksMax)
    notes.add(source, `fallbacks: only the first ${fallbacksMax} were imported, the most that an engine file can have`);
  return distinct.slice(0, fallbacksMax);
}

const taskOf = (fields: EngineDraft['fields']): TaskType => fields['task_type'] as TaskType;

/** Inserts the fallbacks after the prices, their place in engine files. */
function insert(fields: EngineDraft['fields'], fallbacks: readonly string[]): EngineDraft['fields'] {
  return Object.fromEntries(
    Object.entries(fields).flatMap((field) => (field[0] === 'pricing' ? [field, ['fallbacks', fallbacks]] : [field])),
  );
}
