import type { CountedMost } from '#core/gateways/gateways.ts';
import type { Call, InferenceRequest } from './call.ts';
import { valueText } from './member.ts';

/** What models set around each text that they read, in tokens: its body has as many bytes for quotes and a comma. */
const aroundBytes = 512;

/**
 * Tokens that an engine counts at most of a request, or of a part of one, that is sent once: a prompt counts for each of
 * its choices and turns, and nothing is longer than the context.
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
  // A token has a byte at least, but for media, and where texts are filled up; what is compared is read with each other.
  const isBoundless = isFilledUp(fields) || fields.media.present;
  const tokens = isBoundless || endpoint.inputs.kind === 'pairs' ? Infinity : bytes;
  return { promptTokens: Math.min(texts * contextLength, tokens), completionTokens: 0 };
}

type CountedRequest = Pick<InferenceRequest, 'fields' | 'model' | 'turns'>;

/** True if the engine surely keeps to the output limit of a request. Otherwise it may fill its context. */
export const isLimitKept = ({ fields, model, turns }: CountedRequest): boolean =>
  turns === 1 && (fields.isLimitCommon || model.engine.kind === 'vllm');

/** Whether texts are filled up with tokens that the body does not have. */
export function isFilledUp({ members, text }: CountedRequest['fields']): boolean {
  const member = members.get('padding');
  return member !== undefined && !/^(?:null|false)$/.test(valueText(text, member));
}
