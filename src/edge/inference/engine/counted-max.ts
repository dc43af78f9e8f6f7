import type { CountedMost } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { valueText } from '#edge/inference/json-member.ts';

/** Tokens that models put around each text; the body has as many bytes for quotes and a comma. */
const aroundBytes = 512;

/**
 * Returns the most tokens that an engine may count for a request, or a part of one, that is sent once. A prompt counts
 * for each of its choices and turns, and nothing is longer than the context.
 */
export function countedMax({ endpoint, part }: Pick<Call, 'endpoint' | 'part'>, request: CountedRequest): CountedMost {
  const { fields, model, turns } = request;
  const { contextLength } = model;
  if (endpoint.generates) {
    const sequences = fields.prompts * fields.choices * turns;
    const limit = isLimitKept(request) ? fields.outputTokensMax : null;
    const outputTokens = Math.min(limit ?? contextLength, contextLength);
    return { promptTokens: sequences * contextLength, completionTokens: sequences * outputTokens };
  }
  const texts = part?.input.count ?? (endpoint.inputs.kind === 'texts' ? fields.texts : fields.prompts);
  const bytes = (part === null ? fields.text.length : part.input.end - part.input.start) + aroundBytes;
  // A token has at least one byte, except in media and in filled-up texts. Compared texts may be read several times.
  const isBoundless = isFilledUp(fields) || fields.media.present;
  const tokens = isBoundless || endpoint.inputs.kind === 'pairs' ? Infinity : bytes;
  return { promptTokens: Math.min(texts * contextLength, tokens), completionTokens: 0 };
}

type CountedRequest = Pick<InferenceRequest, 'fields' | 'model' | 'turns'>;

/** True if the engine is certain to obey the output limit of a request. Otherwise the answer may fill the context. */
export const isLimitKept = ({ fields, model, turns }: CountedRequest): boolean =>
  turns === 1 && (fields.isLimitCommon || model.engine.kind === 'vllm');

/** True if texts are filled up with tokens that the body does not have. */
export function isFilledUp({ members, text }: CountedRequest['fields']): boolean {
  const member = members.get('padding');
  return member !== undefined && !/^(?:null|false)$/.test(valueText(text, member));
}
