import { skipSpace } from '#base/json/json.ts';
import { parseMember } from '#edge/inference/json-member.ts';
import { type BodyReader, countList, invalidJson, invalidValue, isList, present } from './body-reader.ts';
import type { InputForm, TextsForm } from './request-form.ts';
import { findItems, isListOfTexts, isLong, type SplitInput, splitInput } from './split-input.ts';

/** Bounds on the number of prompts in one request. */
export interface InputBounds {
  /** Prompts times choices of a request that generates text. */
  readonly sequencesMax: number;
  /** Inputs of a request that does not generate, if all are sent at once: pairs for a reranker, chats. */
  readonly inputsMax: number;
  /** Texts of a request whose texts are sent in parts. */
  readonly textsMax: number;
}

export interface Inputs {
  /** Prompts that an engine runs one by one, and that the body's bytes do not bound together. */
  readonly prompts: number;
  /** Texts that engines read and truncate one by one. */
  readonly texts: number;
  /** Null if all inputs are sent at once. */
  readonly split: SplitInput | null;
}

/**
 * Counts the inputs of a request.
 * @throws AppError invalid_value for more inputs than allowed, except for prompts; invalid_request_error for invalid
 * JSON
 */
export function countInputs(reader: BodyReader, form: InputForm, bounds: InputBounds): Inputs {
  const { inputsMax, sequencesMax } = bounds;
  if (form.kind === 'prompts') return alike(form.key === null ? 1 : countList(reader, form.key, sequencesMax));
  if (form.kind === 'texts') return countTexts(reader, form, bounds);
  return alike(Math.max(1, ...form.keys.map((key) => requireFew(key, countList(reader, key, inputsMax), inputsMax))));
}

const alike = (count: number): Inputs => ({ prompts: count, texts: count, split: null });

function requireFew(key: string, count: number, max: number): number {
  if (count <= max) return count;
  throw invalidValue(key, `"${key}" may have at most ${max} inputs. Send several requests.`);
}

/** Counts texts. They are one prompt, because their bytes bound all of them together. */
function countTexts(reader: BodyReader, form: TextsForm, { inputsMax, textsMax }: InputBounds): Inputs {
  const { key, chatsKey } = form;
  const chats = hasChats(reader, chatsKey) ? countList(reader, chatsKey, inputsMax) : 1;
  requireFew(chatsKey, chats, inputsMax);
  const member = present(reader, key);
  if (member === null || !isList(reader, member)) return { prompts: 1, texts: chats, split: null };
  const items = findItems(reader.text, member.valueStart, Math.max(inputsMax, textsMax));
  if (items === null) throw invalidJson(key);
  const count = items.starts.length;
  const long = isLong(items);
  const areTexts = isListOfTexts(reader.text, items) && (!long || canBeJoined(reader, form));
  requireFew(key, count, areTexts ? textsMax : inputsMax);
  const split = long && areTexts ? splitInput(reader, key, member.valueStart, items) : null;
  return { prompts: 1, texts: Math.max(chats, count), split };
}

/** True if the answers of several parts can be joined: not if they are bytes, nor if the request has chats. */
function canBeJoined(reader: BodyReader, { chatsKey, formatKey, joinedFormats }: TextsForm): boolean {
  if (present(reader, chatsKey) !== null) return false;
  const format = present(reader, formatKey);
  return format === null || joinedFormats.some((one) => one === parseMember(reader.text, format));
}

/** True if messages are a list of several chats, and not one chat. */
function hasChats({ text, members }: BodyReader, key: string): boolean {
  const chats = members.get(key);
  return (
    chats !== undefined &&
    text.startsWith('[', chats.valueStart) &&
    text.startsWith('[', skipSpace(text, chats.valueStart + 1))
  );
}

/** @throws AppError invalid_value if prompts times choices exceed the bound */
export function checkSequences(prompts: number, choices: number, { sequencesMax }: InputBounds): void {
  if (prompts * choices <= sequencesMax) return;
  const param = prompts > 1 ? 'prompt' : 'n';
  const asked = prompts > sequencesMax ? '' : `; this request asks for ${prompts} times ${choices}`;
  throw invalidValue(
    param,
    `A request may ask for at most ${sequencesMax} completions (prompts times "n")${asked}. Send several requests.`,
  );
}
