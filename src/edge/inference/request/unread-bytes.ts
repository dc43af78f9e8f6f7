import { skipString } from '#base/json/json.ts';
import type { BodyReader } from './body-reader.ts';
import type { Media } from './media.ts';
import { type InputForm, inputKeys } from './request-form.ts';

/** Counts of the parts of a body that are not text of a prompt. */
export interface Unread {
  /** Token ids of the prompts: each is one token. */
  readonly tokenIds: number;
  /** Bytes of token ids, media and the form of the answer. */
  readonly unreadBytes: number;
}

/** Members that give the answer its form. Engines build a grammar of them, and they are in no prompt. */
const formMembers = ['response_format', 'structured_outputs', 'text', 'output_config'];

export function readUnread({ text, members }: BodyReader, inputs: InputForm, media: Media): Unread {
  let tokenIds = 0;
  let unreadBytes = media.bytes;
  for (const key of formMembers) {
    const form = members.get(key);
    if (form !== undefined) unreadBytes += form.valueEnd - form.valueStart;
  }
  for (const key of inputKeys(inputs)) {
    const input = members.get(key);
    if (input === undefined) continue;
    const ids = countIds(text, input.valueStart, input.valueEnd);
    tokenIds += ids.tokenIds;
    unreadBytes += ids.unreadBytes;
  }
  return { tokenIds, unreadBytes };
}

const QUOTE = 0x22;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;

/**
 * Counts the token ids of prompts, and the bytes of the ids with the separators between them. Each number outside of a
 * string is an id: a text among ids keeps all of its bytes.
 * @param text JSON, as latin1; the prompts stand in it from `start` to `end`
 */
export function countIds(text: string, start: number, end: number): Unread {
  let tokenIds = 0;
  let unreadBytes = 0;
  let at = start;
  while (at < end) {
    const beganAt = at;
    let idsHere = 0;
    let isInNumber = false;
    for (; at < end; at += 1) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) break;
      const isDigit = code >= DIGIT_0 && code <= DIGIT_9;
      if (isDigit && !isInNumber) idsHere += 1;
      isInNumber = isDigit;
    }
    tokenIds += idsHere;
    if (idsHere > 0) unreadBytes += at - beganAt;
    if (at === end) break;
    const after = skipString(text, at);
    if (after === -1) break;
    at = after;
  }
  return { tokenIds, unreadBytes };
}
