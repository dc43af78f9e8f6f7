import { type Splice, spliceText } from '#base/json/json.ts';
import {
  countOf,
  type EngineCount,
  type Members,
  parseMessageUsage,
  parseObject,
  parseUsage,
  type Usage,
} from './usage.ts';
import { costSplice } from './usage-member.ts';

/** Bill of a request in the form for its answer. */
export interface ShownBill {
  /** Null keeps the engine's usage, as for an answer from the response cache. */
  readonly usage: Usage | null;
  /** `usage.cost` in USD as JSON; null if the client did not ask for it. */
  readonly costText: string | null;
}

/** The `usage` object of one API. */
export interface UsageForm {
  /** Reads the text of an engine's `usage`. @returns null if the text is not a JSON object */
  read(json: string): EngineCount | null;
  /** Returns the members that must equal the bill. @param known what the engine sent, an earlier event included */
  figures(usage: Usage, known: Members): Readonly<Record<string, number>>;
  /** Returns the object for an answer whose engine sent none. */
  whole(usage: Usage): object;
}

/** `usage` of chat and text completions, embeddings, rerank and score. */
export const openaiUsage: UsageForm = {
  read: parseUsage,
  figures: ({ inputTokens, outputTokens }) => ({
    prompt_tokens: inputTokens,
    total_tokens: inputTokens + outputTokens,
    completion_tokens: outputTokens,
  }),
  whole: (usage) => ({
    ...openaiUsage.figures(usage, {}),
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: usage.reasoningTokens === 0 ? null : { reasoning_tokens: usage.reasoningTokens },
  }),
};

/** `usage` of `/v1/responses`. */
export const responsesUsage: UsageForm = {
  read: parseUsage,
  figures: ({ inputTokens, outputTokens }) => ({
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    total_tokens: inputTokens + outputTokens,
  }),
  whole: (usage) => ({
    ...responsesUsage.figures(usage, {}),
    input_tokens_details: { cached_tokens: usage.cachedTokens },
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  }),
};

/** `usage` of `/v1/messages`: `input_tokens` excludes what was read from or written to the prompt cache. */
export const messagesUsage: UsageForm = {
  read: parseMessageUsage,
  figures({ inputTokens, cachedTokens, outputTokens }, known) {
    const written = countOf(known['cache_creation_input_tokens']) ?? 0;
    return {
      input_tokens: Math.max(0, inputTokens - cachedTokens - written),
      cache_read_input_tokens: cachedTokens,
      output_tokens: outputTokens,
    };
  },
  whole: (usage) => messagesUsage.figures(usage, {}),
};

/** Place of `usage` in a text: its value, or where the member is inserted. */
export interface UsagePlace {
  readonly start: number;
  readonly end: number;
  /** Text before an inserted value; '' if a value is there. */
  readonly prefix: string;
  /** Counts of an earlier event, which those of this place replace. */
  readonly before?: Members;
}

/** Returns the place for a member at the end of the object from `start` to `end`. */
export function placeAtEnd(text: string, start: number, end: number): UsagePlace {
  const isEmpty = text.slice(start + 1, end - 1).trim() === '';
  return { start: end - 1, end: end - 1, prefix: isEmpty ? '"usage":' : ',"usage":' };
}

/** Returns the splices that show the bill at a place; none without a place or a bill. */
export function usageSplices(
  text: string,
  place: UsagePlace | null,
  bill: ShownBill | null,
  form: UsageForm,
): readonly Splice[] {
  if (place === null || bill === null) return [];
  const { start, end, prefix, before } = place;
  const shown = shownUsage(text.slice(start, end), bill, form, before);
  return shown === '' ? [] : [{ start, end, text: prefix + shown }];
}

/**
 * Returns the `usage` that shows the bill. An engine's usage whose figures equal the bill keeps its bytes; otherwise its
 * figures are replaced, and its other members stay.
 * @param json the engine's `usage` as latin1; '' for none
 */
export function shownUsage(
  json: string,
  { usage, costText }: ShownBill,
  form: UsageForm,
  before: Members = {},
): string {
  const shown = usage === null ? json : billedUsage(json, usage, form, before);
  if (costText === null || !shown.startsWith('{')) return shown;
  return spliceText(shown, [costSplice(shown, { start: 0, end: shown.length }, costText)]);
}

function billedUsage(json: string, usage: Usage, form: UsageForm, before: Members): string {
  const own = json.startsWith('{') ? parseObject(json) : null;
  if (own === null) return JSON.stringify(form.whole(usage));
  const known = { ...before, ...own };
  const figures = form.figures(usage, known);
  const isBilled = Object.entries(figures).every(([name, tokens]) => (known[name] ?? 0) === tokens);
  return isBilled ? json : JSON.stringify({ ...own, ...figures });
}
