import { skipSpace } from '#base/json-scan.ts';
import { type BodyReader, countList, invalidValue } from './body-reader.ts';
import type { InputForm } from './request-form.ts';

/** How many prompts one request may be. */
export interface InputBounds {
  /** Prompts times choices of a request that generates. */
  readonly sequencesMax: number;
  /** Inputs of one that does not: texts of an embedding, pairs that a reranker compares. */
  readonly inputsMax: number;
}

export interface Inputs {
  /** What an engine runs one by one, and what a body's bytes do not bound all together. */
  readonly prompts: number;
  /** What engines read each for itself, and cut so. */
  readonly texts: number;
}

/**
 * Counts the inputs of a request.
 * @throws AppError invalid_value for more than there may be, but for prompts; invalid_request_error for what is no JSON
 */
export function countInputs(reader: BodyReader, form: InputForm, { inputsMax, sequencesMax }: InputBounds): Inputs {
  if (form.kind === 'prompts') return alike(form.key === null ? 1 : countList(reader, form.key, sequencesMax));
  const keys = form.kind === 'texts' && hasChats(reader, form.chatsKey) ? [...form.keys, form.chatsKey] : form.keys;
  let most = 1;
  for (const key of keys) {
    const count = countList(reader, key, inputsMax);
    if (count > inputsMax) throw invalidValue(key, `"${key}" may have ${inputsMax} inputs: send several requests.`);
    most = Math.max(most, count);
  }
  // Texts count as one prompt: their bytes bound them all together.
  return form.kind === 'texts' ? { prompts: 1, texts: most } : alike(most);
}

const alike = (count: number): Inputs => ({ prompts: count, texts: count });

/** Messages are one chat, or a list of several. */
function hasChats({ text, members }: BodyReader, key: string): boolean {
  const chats = members.get(key);
  return (
    chats !== undefined &&
    text.startsWith('[', chats.valueStart) &&
    text.startsWith('[', skipSpace(text, chats.valueStart + 1))
  );
}

/** @throws AppError invalid_value for more answers than one request may ask for */
export function checkSequences(prompts: number, choices: number, { sequencesMax }: InputBounds): void {
  if (prompts * choices <= sequencesMax) return;
  const param = prompts > 1 ? 'prompt' : 'n';
  const asked = prompts > sequencesMax ? '' : `, and ${prompts} times ${choices} are more`;
  throw invalidValue(param, `A request may ask for ${sequencesMax} answers, prompts times "n"${asked}: send several.`);
}
