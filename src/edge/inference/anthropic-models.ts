import { AppError } from '#base/errors.ts';
import type { AnthropicModelAnswer, AnthropicModelListAnswer, ModelAnswer } from '#edge/contract/models.ts';

/** Models in the shape and with the paging of Anthropic's API, for clients that send `anthropic-version`. */

/** Most models on a page. Also the default: clients that do not page get the whole list. */
const pageMax = 1000;

export function anthropicModel(model: ModelAnswer): AnthropicModelAnswer {
  return {
    type: 'model',
    id: model.id,
    display_name: model.name,
    created_at: new Date(model.created * 1000).toISOString(),
    max_input_tokens: model.context_length,
    max_tokens: model.max_output_length,
    lifecycle: 'active',
    capabilities: null,
    deprecated_at: null,
    retires_at: null,
    line: null,
  };
}

/**
 * Returns one page: the first models, those after `after_id`, or the last ones before `before_id`.
 * @throws AppError invalid_value for a limit outside 1 to 1000, an unknown id, or both ids at once
 */
export function anthropicPage(
  models: readonly ModelAnswer[],
  { limit, after_id: after, before_id: before }: Readonly<Record<string, string>>,
): AnthropicModelListAnswer {
  const size = limit === undefined ? pageMax : Number(/^\d{1,4}$/.exec(limit)?.[0]);
  if (!(size >= 1 && size <= pageMax)) throw invalid('limit', `"limit" must be a whole number from 1 to ${pageMax}.`);
  if (after !== undefined && before !== undefined) {
    throw invalid('before_id', 'Send "after_id" or "before_id", not both.');
  }
  const placeOf = (param: string, id: string): number => {
    const place = models.findIndex((model) => model.id === id);
    if (place === -1) throw invalid(param, `"${param}" must be the id of a model in the list.`);
    return place;
  };
  const end = before === undefined ? models.length : placeOf('before_id', before);
  const start = after === undefined ? 0 : placeOf('after_id', after) + 1;
  const from = before === undefined ? start : Math.max(0, end - size);
  const data = models.slice(from, Math.min(end, from + size)).map(anthropicModel);
  return {
    data,
    has_more: before === undefined ? from + size < end : from > 0,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  };
}

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });
