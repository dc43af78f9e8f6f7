import { forEachElement } from '#base/json/json.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { isNull, valueText } from '#edge/inference/json-member.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { inputKeys } from './request-form.ts';

/**
 * Token ids belong to one vocabulary. Another model would read other words in them, and answer in ids that the client
 * reads as other words.
 */

/** Members that contain token ids or ask for them, with the values that do neither. */
const idMembers: Readonly<Record<string, RegExp>> = {
  logit_bias: /^\{\s*\}$/,
  stop_token_ids: /^\[\s*\]$/,
  allowed_token_ids: /^\[\s*\]$/,
  logprob_token_ids: /^\[\s*\]$/,
  return_token_ids: /^false$/,
  return_tokens_as_token_ids: /^false$/,
};

/** True if a request contains token ids or asks for them. */
export function usesTokenIds(fields: RequestFields, endpoint: Endpoint): boolean {
  if (endpoint.isOfTokenIds === true) return true;
  const { members, text } = fields;
  for (const [key, nothing] of Object.entries(idMembers)) {
    const member = members.get(key);
    if (member !== undefined && !isNull(text, member) && !nothing.test(valueText(text, member))) return true;
  }
  return inputKeys(endpoint.inputs).some((key) => {
    const member = members.get(key);
    return member !== undefined && hasIds(valueText(text, member));
  });
}

/** True if a list has numbers or lists among its items. Texts are strings, and compared inputs may be objects. */
function hasIds(json: string): boolean {
  let found = false;
  forEachElement(json, 0, (start) => {
    found = /[[\-\d]/.test(json.charAt(start));
    return !found;
  });
  return found;
}

/** True if ids mean the same to both engines, as far as their files show: both serve one repository. */
export const shareVocabulary = (one: EngineDefinition, other: EngineDefinition): boolean =>
  repositoryOf(one) === repositoryOf(other);

/**
 * Returns the repository that an engine serves. An external engine may serve the repository of another file;
 * deployments with different names of one model do not show which.
 */
function repositoryOf({ driver, huggingFaceId, id }: EngineDefinition): string {
  const [upstream = null, ...others] =
    driver.type === 'external' ? new Set(driver.deployments.map(({ upstreamModel }) => upstreamModel)) : [];
  return (others.length === 0 ? upstream : null) ?? huggingFaceId ?? id;
}
