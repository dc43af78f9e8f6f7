import type { PriceVersion } from '#core/catalog/catalog.ts';

/** Tokens that an engine counted for one request. */
export interface Usage {
  readonly inputTokens: number;
  /** Part of inputTokens that the engine had cached. */
  readonly cachedTokens: number;
  /** Part of inputTokens that the engine added to its cache. Priced as the rest of the input. */
  readonly cacheWriteTokens: number;
  readonly outputTokens: number;
  /** Part of outputTokens that was reasoning. */
  readonly reasoningTokens: number;
}

/**
 * Sources of the figures of a count; the least certain one is stored. In this order: the engine's last count; an
 * earlier count, or counts of the parts that the engine answered; no source; the text that passed and the prompt's
 * estimate. See `usageOf`.
 */
export const usageSources = ['engine', 'last_seen', 'none', 'counted'] as const;
export type UsageSource = (typeof usageSources)[number];

export const noUsage: Usage = {
  inputTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
};

/** One count as an engine sent it. A figure that is absent or impossible is null. */
export interface EngineCount {
  readonly inputTokens: number | null;
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly outputTokens: number | null;
  readonly reasoningTokens: number;
  /** True if `inputTokens` is a total beside which no output was counted: it includes the output of an answer. */
  readonly isTotal?: boolean;
}

/**
 * Returns the larger of each figure, with the details of the count that has it: a later count cannot lower an earlier
 * one.
 */
export function largest(a: EngineCount | null, b: EngineCount | null): EngineCount | null {
  if (a === null || b === null) return a ?? b;
  const [inputTokens, cachedTokens] = larger([a.inputTokens, a.cachedTokens], [b.inputTokens, b.cachedTokens]);
  const [outputTokens, reasoningTokens] = larger(
    [a.outputTokens, a.reasoningTokens],
    [b.outputTokens, b.reasoningTokens],
  );
  const cacheWriteTokens = Math.max(a.cacheWriteTokens, b.cacheWriteTokens);
  const isTotal = (a.inputTokens === inputTokens ? a : b).isTotal === true;
  return { inputTokens, cachedTokens, cacheWriteTokens, outputTokens, reasoningTokens, ...(isTotal && { isTotal }) };
}

type FigureWithPart = readonly [tokens: number | null, part: number];

function larger(a: FigureWithPart, b: FigureWithPart): FigureWithPart {
  if (a[0] === b[0]) return a[1] > b[1] ? a : b;
  return (a[0] ?? -1) > (b[0] ?? -1) ? a : b;
}

/** Maximum of tokens, far above any request; the database can store it. */
const tokensMax = 1_000_000_000;

/** @returns null if the value is not a count, or larger than any request can use */
export function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= tokensMax ? value : null;
}

/** Returns a part of a count; 0 if there is none. */
const partOf = (value: unknown): number => countOf(value) ?? 0;

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** Returns the member under its name in chat, else under its name in responses. */
function either(value: unknown, chat: string, responses: string): unknown {
  return member(value, chat) ?? member(value, responses);
}

/** Members of a JSON object. */
export type Members = Readonly<Record<string, unknown>>;

/** @returns null if the text is not a JSON object */
export function parseObject(json: string): Members | null {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null ? (value as Members) : null;
  } catch {
    return null;
  }
}

/**
 * Returns the prompt's count. If it is absent or 0, as in embeddings of some engines, returns the total minus the output.
 */
function promptOf(value: object, output: unknown): Pick<EngineCount, 'inputTokens' | 'isTotal'> {
  const counted = either(value, 'prompt_tokens', 'input_tokens') ?? 0;
  const total = countOf(member(value, 'total_tokens'));
  const known = partOf(output);
  if (counted !== 0 || total === null || total === 0 || total < known) {
    return { inputTokens: countOf(either(value, 'prompt_tokens', 'input_tokens')) };
  }
  return known > 0 ? { inputTokens: total - known } : { inputTokens: total, isTotal: true };
}

/**
 * Reads a `usage` object in the form of OpenAI and vLLM, of chat or of responses. Every detail may be absent or null
 * (vLLM sends `prompt_tokens_details` only with a flag and only at the end, `completion_tokens_details` only with a
 * reasoning parser); a part is never larger than its whole.
 * @param json the object's text
 * @returns null if the text is not a JSON object
 */
export function parseUsage(json: string): EngineCount | null {
  const value = parseObject(json);
  if (value === null) return null;
  const output = either(value, 'completion_tokens', 'output_tokens');
  const prompt = promptOf(value, output);
  const outputTokens = countOf(output);
  const inputDetails = either(value, 'prompt_tokens_details', 'input_tokens_details');
  const outputDetails = either(value, 'completion_tokens_details', 'output_tokens_details');
  return {
    ...prompt,
    cachedTokens: Math.min(prompt.inputTokens ?? 0, partOf(member(inputDetails, 'cached_tokens'))),
    cacheWriteTokens: partOf(either(inputDetails, 'created_cache_tokens', 'cache_write_tokens')),
    outputTokens,
    reasoningTokens: Math.min(outputTokens ?? 0, partOf(member(outputDetails, 'reasoning_tokens'))),
  };
}

/**
 * Reads a `usage` object in Anthropic's form: the cached part of the prompt is counted beside the rest, not in it.
 * @param json the object's text
 * @returns null if the text is not a JSON object
 */
export function parseMessageUsage(json: string): EngineCount | null {
  const value = parseObject(json);
  if (value === null) return null;
  const input = countOf(member(value, 'input_tokens'));
  const cachedTokens = partOf(member(value, 'cache_read_input_tokens'));
  const writtenTokens = partOf(member(value, 'cache_creation_input_tokens'));
  const inputTokens = input === null ? null : countOf(input + cachedTokens + writtenTokens);
  return {
    inputTokens,
    cachedTokens: Math.min(inputTokens ?? 0, cachedTokens),
    cacheWriteTokens: writtenTokens,
    outputTokens: countOf(member(value, 'output_tokens')),
    reasoningTokens: 0,
  };
}

/**
 * Returns the number after `"name":` in a usage object's text, for the count that is read on every frame; 0 for an
 * impossible number.
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
 * Returns the cost of usage in pico-dollars: tokens × price, exact, because a price is micro-dollars per million
 * tokens.
 */
export function costOf(usage: Usage, price: PriceVersion): bigint {
  return (
    BigInt(usage.inputTokens - usage.cachedTokens) * price.inputPerMTokMicroUsd +
    BigInt(usage.cachedTokens) * price.cachedInputPerMTokMicroUsd +
    BigInt(usage.outputTokens) * price.outputPerMTokMicroUsd
  );
}
