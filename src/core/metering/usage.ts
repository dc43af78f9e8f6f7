import type { PriceVersion } from '#core/catalog/catalog.ts';

/** What an engine counted for one request. */
export interface Usage {
  readonly inputTokens: number;
  /** Part of inputTokens that the engine had cached. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Part of outputTokens that was reasoning. */
  readonly reasoningTokens: number;
}

/**
 * Where a count is from: the engine's final one, the last running one that it sent, or those of the parts of a request
 * that it answered, what was counted here of an answer that ended without one, or nowhere.
 */
export const usageSources = ['engine', 'last_seen', 'none', 'counted'] as const;
export type UsageSource = (typeof usageSources)[number];

export const noUsage: Usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0, reasoningTokens: 0 };

/** Tokens that no request comes near, whatever the model; books hold them with room to spare. */
const tokensMax = 1_000_000_000;

/** Null for what no engine can have counted; it is then not known what the request used. NaN is no count either. */
export function believable(usage: Usage): Usage | null {
  return usage.inputTokens <= tokensMax && usage.outputTokens <= tokensMax ? usage : null;
}

const isCount = (value: unknown): value is number => typeof value === 'number' && Number.isInteger(value) && value >= 0;

/** A part of a count; 0 where there is none. */
const partOf = (value: unknown): number => (isCount(value) ? value : 0);

/** A count of its own: absent it is 0, and NaN where something else stands there. */
const wholeOf = (value: unknown): number => (isCount(value) ? value : (value ?? null) === null ? 0 : Number.NaN);

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** The member of that name which chat has, else the one that responses have in its place. */
function either(value: unknown, chat: string, responses: string): unknown {
  return member(value, chat) ?? member(value, responses);
}

/**
 * Reads a `usage` object as OpenAI and vLLM write it, of chat or of responses. Every detail may be absent or null (vLLM
 * sends `prompt_tokens_details` only with a flag and only at the end, `completion_tokens_details` only with a reasoning
 * parser); parts are never taken for more than their whole.
 * @param json the object's text
 * @returns null when the text is not a JSON object, or counts what no request can use
 */
export function parseUsage(json: string): Usage | null {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const inputTokens = wholeOf(either(value, 'prompt_tokens', 'input_tokens'));
  const outputTokens = wholeOf(either(value, 'completion_tokens', 'output_tokens'));
  const input = either(value, 'prompt_tokens_details', 'input_tokens_details');
  const output = either(value, 'completion_tokens_details', 'output_tokens_details');
  return believable({
    inputTokens,
    cachedTokens: Math.min(inputTokens, partOf(member(input, 'cached_tokens'))),
    outputTokens,
    reasoningTokens: Math.min(outputTokens, partOf(member(output, 'reasoning_tokens'))),
  });
}

/** As `parseUsage`, of a stream that has brought output; null also where the count says nothing of that. */
export function parseLastUsage(json: string): Usage | null {
  const usage = parseUsage(json);
  if (usage === null) return null;
  return isCount(either(JSON.parse(json), 'completion_tokens', 'output_tokens')) ? usage : null;
}

/**
 * Reads a `usage` object as Anthropic writes it: the cached part of the prompt is counted beside the rest, not in it.
 * @param json the object's text
 * @returns null when the text is not a JSON object, or counts what no request can use
 */
export function parseMessageUsage(json: string): Usage | null {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const cachedTokens = wholeOf(member(value, 'cache_read_input_tokens'));
  const writtenTokens = wholeOf(member(value, 'cache_creation_input_tokens'));
  return believable({
    inputTokens: wholeOf(member(value, 'input_tokens')) + cachedTokens + writtenTokens,
    cachedTokens,
    outputTokens: wholeOf(member(value, 'output_tokens')),
    reasoningTokens: 0,
  });
}

/**
 * The number that stands after `"name":` in a usage object's text, for the count that is read on every frame; 0 for one
 * that no engine can have counted.
 */
export function readCount(json: string, name: string): number {
  const at = json.indexOf(`"${name}":`);
  if (at === -1) return 0;
  let index = at + name.length + 3;
  while (json.charCodeAt(index) === 0x20) index += 1;
  let value = 0;
  for (;;) {
    const digit = json.charCodeAt(index) - 0x30;
    if (!(digit >= 0 && digit <= 9)) return value <= tokensMax ? value : 0;
    value = value * 10 + digit;
    index += 1;
  }
}

/**
 * What usage costs, in pico-dollars: tokens × price, exact, because a price counts micro-dollars per million tokens.
 */
export function costOf(usage: Usage, price: PriceVersion): bigint {
  return (
    BigInt(usage.inputTokens - usage.cachedTokens) * price.inputPerMTokMicroUsd +
    BigInt(usage.cachedTokens) * price.cachedInputPerMTokMicroUsd +
    BigInt(usage.outputTokens) * price.outputPerMTokMicroUsd
  );
}
