import type { Catalog } from '#core/catalog/catalog.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Bounds of a list of models. */
export interface ModelListBounds {
  /** Ids that the organization may use; null is all. */
  readonly within: readonly string[] | null;
  /** Ids that were in the list before: their engine files may be deleted. */
  readonly kept: readonly string[] | null;
}

/**
 * Returns the ids of the models that a list names, without duplicates. A model that the organization may not use is
 * treated as unknown.
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
