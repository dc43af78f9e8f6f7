import type { Model } from '#core/catalog/catalog.ts';
import type { CountedMost } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { valueText } from '#edge/inference/json-member.ts';
import { type Endpoint, mayRunTools, turnsMax } from '#edge/inference/request/request.ts';

/** Tokens that models put around each text; the body has as many bytes for quotes and a comma. */
const aroundBytes = 512;

/**
 * Returns the most tokens that an engine may count for a request, or a part of one, that is sent once. A prompt counts
 * for each of its choices and turns, and no generated sequence is longer than the context.
 */
export function countedMax({ endpoint, part }: Pick<Call, 'endpoint' | 'part'>, request: CountedRequest): CountedMost {
  const { fields, model } = request;
  const { contextLength } = model;
  const turns = turnsPossible(endpoint, model.engine, request.turns);
  if (endpoint.generates) {
    const sequences = fields.prompts * fields.choices * turns;
    const limit = turns === request.turns && isLimitKept(request) ? fields.outputTokensMax : null;
    // vLLM generates one token where none are asked for.
    const outputTokens = Math.min(Math.max(limit ?? contextLength, 1), contextLength);
    return { promptTokens: sequences * contextLength, completionTokens: sequences * outputTokens };
  }
  const texts = part?.input.count ?? (endpoint.inputs.kind === 'texts' ? fields.texts : fields.prompts);
  const bytes = (part === null ? fields.text.length : part.input.end - part.input.start) + aroundBytes;
  // Both texts of a pair may be read, each up to the context.
  if (endpoint.inputs.kind === 'pairs') return { promptTokens: 2 * texts * contextLength, completionTokens: 0 };
  // A token has at least one byte, except in media and in filled-up texts. Engines may divide longer texts.
  const isBoundless = isFilledUp(fields) || fields.media.present;
  return { promptTokens: isBoundless ? texts * contextLength : bytes, completionTokens: 0 };
}

type CountedRequest = Pick<InferenceRequest, 'fields' | 'model' | 'turns'>;

/**
 * Returns the turns that an engine may take: an older vLLM may run tools that its server has and the request does not
 * name.
 */
export const turnsPossible = (endpoint: Endpoint, engine: Model['engine'], turns: number): number =>
  mayRunTools(endpoint, engine) ? turnsMax : turns;

/** True if the engine is certain to obey the output limit of a request. Otherwise the answer may fill the context. */
export const isLimitKept = ({ fields, model, turns }: CountedRequest): boolean =>
  turns === 1 && (fields.isLimitCommon || model.engine.kind === 'vllm');

/** True if texts are filled up with tokens that the body does not have. */
export function isFilledUp({ members, text }: CountedRequest['fields']): boolean {
  const member = members.get('padding');
  return member !== undefined && !/^(?:null|false)$/.test(valueText(text, member));
}
