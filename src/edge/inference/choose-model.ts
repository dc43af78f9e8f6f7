import { AppError } from '#base/errors.ts';
import type { Catalog, Model, TaskType } from '#core/catalog/catalog.ts';
import type { InferenceEndpoint } from './fields.ts';

const embeddingTasks: readonly TaskType[] = ['embedding'];
const rerankTasks: readonly TaskType[] = ['rerank'];
const chatTasks: readonly TaskType[] = ['chat', 'vision', 'code'];
const textTasks: readonly TaskType[] = [...chatTasks, 'completion'];

/** Chat templates belong to the model: one for plain completion has none, the others answer both routes. */
function tasksOf(endpoint: InferenceEndpoint): readonly TaskType[] {
  if (endpoint === '/v1/embeddings') return embeddingTasks;
  if (endpoint === '/v1/rerank' || endpoint === '/v1/score') return rerankTasks;
  return endpoint === '/v1/chat/completions' ? chatTasks : textTasks;
}

const namedMax = 10;

function suggest(catalog: Catalog, endpoint: InferenceEndpoint): string {
  const ids = tasksOf(endpoint).flatMap((task) => catalog.byTask(task).map(({ id }) => id));
  if (ids.length === 0) return 'no model here serves this route';
  const more = ids.length > namedMax ? ', …' : '';
  return `models for this route: ${ids.slice(0, namedMax).join(', ')}${more}`;
}

const shownName = (name: string): string => JSON.stringify(name.slice(0, 128));

/**
 * The model that a request names.
 * @throws AppError model_not_found for an unknown, disabled or unfitting one, naming those that would do
 */
export function chooseModel(catalog: Catalog, name: string, endpoint: InferenceEndpoint): Model {
  const model = catalog.find(name);
  if (model === undefined || !model.enabled) {
    const message = `The model ${shownName(name)} does not exist; ${suggest(catalog, endpoint)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  if (!tasksOf(endpoint).includes(model.taskType)) {
    const message = `The model ${shownName(name)} (${model.taskType}) does not serve ${endpoint}; ${suggest(catalog, endpoint)}.`;
    throw new AppError('model_not_found', { message, param: 'model' });
  }
  return model;
}
