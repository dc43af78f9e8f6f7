import { forEachElement } from '#base/json-scan.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { isNull, valueText } from './member.ts';

/**
 * Token ids are of one vocabulary: another model would read other words in them, and answer in ids that the client
 * takes for other words.
 */

/** Members that hold ids, or ask for them, with the values by which they do not. */
const idMembers: Readonly<Record<string, RegExp>> = {
  logit_bias: /^\{\s*\}$/,
  stop_token_ids: /^\[\s*\]$/,
  allowed_token_ids: /^\[\s*\]$/,
  logprob_token_ids: /^\[\s*\]$/,
  return_token_ids: /^false$/,
  return_tokens_as_token_ids: /^false$/,
};

/** Whether a request says or asks for anything by ids of tokens. */
export function usesTokenIds(fields: RequestFields, endpoint: Endpoint): boolean {
  if (endpoint.isOfTokenIds === true) return true;
  const { members, text } = fields;
  for (const [key, nothing] of Object.entries(idMembers)) {
    const member = members.get(key);
    if (member !== undefined && !isNull(text, member) && !nothing.test(valueText(text, member))) return true;
  }
  return inputKeys(endpoint).some((key) => {
    const member = members.get(key);
    return member !== undefined && hasIds(valueText(text, member));
  });
}

/** More would take long to count. */
const countedBytesMax = 1_048_576;

/**
 * Token ids of the prompts, and the bytes that they take of the body; none where the prompts are text, or longer than
 * 1 MiB.
 */
export function countIds({ members, text }: RequestFields, endpoint: Endpoint): { ids: number; bytes: number } {
  const found = { ids: 0, bytes: 0 };
  for (const key of inputKeys(endpoint)) {
    const member = members.get(key);
    if (member === undefined || member.valueEnd - member.valueStart > countedBytesMax) continue;
    const json = valueText(text, member);
    if (!/^\[\s*[[\d]/.test(json)) continue;
    found.bytes += json.length;
    found.ids += 1;
    for (let at = json.indexOf(','); at !== -1; at = json.indexOf(',', at + 1)) found.ids += 1;
  }
  return found;
}

function inputKeys({ inputs }: Endpoint): readonly string[] {
  if (inputs.kind === 'pairs') return inputs.keys;
  return inputs.key === null ? [] : [inputs.key];
}

/** Whether a list has numbers, or lists, among its items: texts are strings, and what is compared may be objects. */
function hasIds(json: string): boolean {
  let found = false;
  forEachElement(json, 0, (start) => {
    found = /[[\-\d]/.test(json.charAt(start));
    return !found;
  });
  return found;
}

/** Whether ids mean the same to both, as far as their files say: both serve one repository. */
export const shareVocabulary = (one: EngineDefinition, other: EngineDefinition): boolean =>
  repositoryOf(one) === repositoryOf(other);

/** Somebody else's engine may serve the repository of another file. */
function repositoryOf({ driver, huggingFaceId, id }: EngineDefinition): string {
  return (driver.type === 'external' ? driver.upstreamModel : null) ?? huggingFaceId ?? id;
}
