import type { Splice } from '#base/json/json.ts';
import {
  countOf,
  type EngineCount,
  type Members,
  parseMessageUsage,
  parseObject,
  parseUsage,
  type Usage,
} from './usage.ts';

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
  /** Returns the members of members that must equal the bill, where either has some. */
  details(usage: Usage): Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** Returns the object for an answer whose engine sent none. @param before counts of an earlier event */
  whole(usage: Usage, before?: Members): object;
}

/** `usage` of chat and text completions, embeddings, rerank and score. */
export const openaiUsage: UsageForm = {
  read: parseUsage,
  figures: ({ inputTokens, outputTokens }) => ({
    prompt_tokens: inputTokens,
    total_tokens: inputTokens + outputTokens,
    completion_tokens: outputTokens,
  }),
  details: ({ cachedTokens, reasoningTokens }) => ({
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
  }),
  whole: (usage) => ({
    ...openaiUsage.figures(usage, {}),
    ...openaiUsage.details(usage),
    ...(usage.reasoningTokens === 0 && { completion_tokens_details: null }),
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
  details: ({ cachedTokens, reasoningTokens }) => ({
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens_details: { reasoning_tokens: reasoningTokens },
  }),
  whole: (usage) => ({
    ...responsesUsage.figures(usage, {}),
    ...responsesUsage.details(usage),
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
  details: () => ({}),
  whole: (usage, before = {}) => messagesUsage.figures(usage, before),
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
  const shown = withoutTurns(withoutCost(usage === null ? json : billedUsage(json, usage, form, before)));
  if (costText === null || !shown.startsWith('{')) return shown;
  const isEmpty = shown.slice(1, -1).trim() === '';
  return `${shown.slice(0, -1)}${isEmpty ? '' : ','}"cost":${costText}}`;
}

function billedUsage(json: string, usage: Usage, form: UsageForm, before: Members): string {
  const own = json.startsWith('{') ? parseObject(json) : null;
  if (own === null) return JSON.stringify(form.whole(usage, before));
  const known = { ...before, ...own };
  const figures = form.figures(usage, known);
  const details = billedDetails(known, form.details(usage));
  return details === null && agrees(known, figures) ? json : JSON.stringify({ ...own, ...figures, ...details });
}

/** Returns those details that differ from the bill, with the billed figures; null if none do. */
function billedDetails(known: Members, billed: ReturnType<UsageForm['details']>): Members | null {
  let differing: Record<string, unknown> | null = null;
  for (const member in billed) {
    const figures = billed[member] ?? {};
    const value = known[member];
    const own: Members = typeof value === 'object' && value !== null ? (value as Members) : {};
    if (!agrees(own, figures)) (differing ??= {})[member] = { ...own, ...figures };
  }
  return differing;
}

/** True if the members equal the billed figures. An absent member counts as 0. */
function agrees(members: Members, figures: Readonly<Record<string, number>>): boolean {
  for (const name in figures) if ((members[name] ?? 0) !== figures[name]) return false;
  return true;
}

/** Removes what an upstream charges: clients see the gateway's cost, or none. */
function withoutCost(json: string): string {
  const usage = /"cost|\\u/.test(json) ? parseObject(json) : null;
  if (usage === null || !('cost' in usage || 'cost_details' in usage)) return json;
  const { cost: _cost, cost_details: _details, ...rest } = usage;
  return JSON.stringify(rest);
}

/**
 * Removes the tokens per turn that vLLM lists in the details of `/v1/responses`: OpenAI's details have numbers only, and
 * its Agents SDK throws for a list.
 */
function withoutTurns(json: string): string {
  const usage = json.includes('_per_turn"') ? parseObject(json) : null;
  if (usage === null) return json;
  const isTurns = (name: string, value: unknown): boolean => name.endsWith('_per_turn') && Array.isArray(value);
  return JSON.stringify(usage, (name, value: unknown) => (isTurns(name, value) ? undefined : value));
}
