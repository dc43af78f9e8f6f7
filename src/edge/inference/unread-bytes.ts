import { bytesPerToken } from '#core/admission/admission.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import { countIds } from './token-ids.ts';

/** Members that give the answer its form: engines build a grammar of them, and no prompt has them. */
const formMembers = ['response_format', 'structured_outputs', 'text', 'output_config', 'guided_json', 'guided_choice'];

/**
 * Bytes of a body that are no text of a prompt: media, the form of the answer, and what token ids take beyond the bytes
 * of a token. Below 0 where ids take fewer.
 */
export function unreadBytes(endpoint: Endpoint, fields: RequestFields): number {
  const { members, media } = fields;
  const forms = formMembers.flatMap((key) => members.get(key) ?? []);
  const formBytes = forms.reduce((bytes, { valueStart, valueEnd }) => bytes + valueEnd - valueStart, 0);
  const { ids, bytes: idBytes } = countIds(fields, endpoint);
  return media.bytes + formBytes + idBytes - ids * bytesPerToken;
}
