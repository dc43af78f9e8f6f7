import { AppError } from '#base/errors.ts';
import type { Catalog, Model } from '#core/catalog/catalog.ts';
import type { Endpoint } from './endpoints.ts';

const namedMax = 10;

function suggest(catalog: Catalog, { taskTypes }: Endpoint): string {
  const ids = taskTypes.flatMap((task) => catalog.byTask(task).map(({ id }) => id));
  if (ids.length === 0) return 'no model here serves this route';
  const more = ids.length > namedMax ? ', …' : '';
  return `models for this route: ${ids.slice(0, namedMax).join(', ')}${more}`;
}

const shownName = (name: string): string => JSON.stringify(name.slice(0, 128));

/**
 * The model that a request names.
 * @throws AppError model_not_found for an unknown, disabled or unfitting one, naming those that would do
 */
export function chooseModel(catalog: Catalog, name: string, endpoint: Endpoint): Model {
  const model = catalog.find(name);
  if (model === undefined || !model.enabled) {
    const message = `The model ${shownName(name)} does not exist; ${suggest(catalog, endpoint)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  if (!endpoint.taskTypes.includes(model.taskType)) {
    const message = `The model ${shownName(name)} (${model.taskType}) does not serve ${endpoint.path}; ${suggest(catalog, endpoint)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  return model;
}
