import type { Catalog } from '#core/catalog/catalog.ts';
import { ValidationError } from '#edge/http/http.ts';

/** What a list of models is held against. */
export interface ModelListBounds {
  /** Ids that the organization may use; null: all. */
  readonly within: readonly string[] | null;
  /** Ids that were in the list before: their engine file may be gone. */
  readonly kept: readonly string[] | null;
}

/**
 * The ids of the models that a list names, each once. A model that the organization may not use does not exist for it.
 * @throws ValidationError
 */
export function readModelList(
  catalog: Pick<Catalog, 'find'>,
  names: readonly string[],
  { within, kept }: ModelListBounds,
): readonly string[] {
  const ids = names.map((name) => {
    const id = catalog.find(name)?.id ?? name;
    const isKnown = id !== name || catalog.find(name) !== undefined || kept?.includes(id) === true;
    return isKnown && (within?.includes(id) ?? true) ? id : null;
  });
  const at = ids.indexOf(null);
  if (at !== -1) {
    const message = `the model ${JSON.stringify(names[at]?.slice(0, 128))} does not exist`;
    throw new ValidationError([{ field: `models.${at}`, message }]);
  }
  return [...new Set(ids.filter((id) => id !== null))];
}
