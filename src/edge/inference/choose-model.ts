import { AppError } from '#base/errors.ts';
import type { Catalog, Model, ServiceTier } from '#core/catalog/catalog.ts';
import { type Endpoint, type EndpointPath, endpoints } from '#edge/inference/request/request.ts';

const namedMax = 10;

/** Ids of the models that a key may use; null for all. */
type Usable = ReadonlySet<string> | null;

export const mayUse = (usable: Usable, { id, enabled }: Model): boolean => enabled && (usable?.has(id) ?? true);

function suggest(catalog: Catalog, { taskTypes }: Endpoint, usable: Usable): string {
  const models = taskTypes.flatMap((task) => catalog.byTask(task));
  const ids = models.filter((model) => mayUse(usable, model)).map(({ id }) => id);
  if (ids.length === 0) return 'no available model supports this endpoint';
  const more = ids.length > namedMax ? ', …' : '';
  return `available models for this endpoint: ${ids.slice(0, namedMax).join(', ')}${more}`;
}

const shownName = (name: string): string => JSON.stringify(name.slice(0, 128));

/**
 * Returns the model that a request names. A model that the key may not use gets the same error as an unknown one, so
 * that nobody learns of it.
 * @throws AppError model_not_found for an unknown, disabled or unsuitable model, with suitable ones in the message
 */
export function chooseModel(catalog: Catalog, name: string, endpoint: Endpoint, usable: Usable): Model {
  const model = catalog.find(name);
  if (model === undefined || !mayUse(usable, model)) {
    const message = `The model ${shownName(name)} does not exist; ${suggest(catalog, endpoint, usable)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  if (!endpoint.taskTypes.includes(model.taskType)) {
    const message = `The model ${shownName(name)} (${model.taskType}) does not support ${endpoint.path}; ${suggest(catalog, endpoint, usable)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  return model;
}

export interface WantedModel {
  readonly endpoint: EndpointPath;
  readonly model: string;
  readonly usable: Usable;
  readonly tier: ServiceTier;
}

/** Returns why an endpoint would reject a model, before any request; null if it would not. */
export function refuseModel(catalog: Catalog, { endpoint, model, usable, tier }: WantedModel): string | null {
  const row = endpoints.find(({ path }) => path === endpoint);
  if (row === undefined) return `The endpoint ${endpoint} is not supported.`;
  try {
    const { id, engine } = chooseModel(catalog, model, row, usable);
    if (tier === 'flex' && engine.flexPricing === null) {
      return `The service tier "flex" is not offered for ${id}: its engine file has no pricing.flex_multiplier.`;
    }
    return null;
  } catch (error) {
    if (error instanceof AppError) return error.message;
    throw error;
  }
}
