import {
  holdForJson,
  holdForStream,
  promptTokenPrice,
  type HoldRequest,
  type TokenPrice,
} from '#core/wallet/wallet.ts';

/**
 * What a request may cost at most and what it will likely cost, before anything of it is counted. Bounds decide about
 * money: a token is at least one byte of the body, but for what a chat template adds and for media, whose tokens are
 * not in the text; no prompt is longer than the model's context. Estimates decide about token limits and caps.
 */

/** What of a request decides its cost. */
export interface RequestSize {
  /** Length of its body. */
  readonly bodyBytes: number;
  /** Pictures, sound or films are part of it. */
  readonly hasMedia: boolean;
  /**
   * What one of its prompts is: `prompts` share the bytes of the body; `pairs` have one text in common, which counts in
   * each; `texts` are many contexts in one prompt.
   */
  readonly inputs: 'prompts' | 'pairs' | 'texts';
  readonly prompts: number;
  /** Choices per prompt. */
  readonly choices: number;
  /** Output tokens per choice that it asks for; null where it names no limit. */
  readonly outputTokensAsked: number | null;
  /** Whether its engine is known to keep to that limit; else it may make what its context holds. */
  readonly isLimitKept: boolean;
  /** Output tokens per choice where it names no limit: 0 where none are made, null for as many as the context holds. */
  readonly outputTokensDefault: number | null;
  /** Tokens that the model's context holds. */
  readonly contextLength: number;
}

/** Tokens that chat templates add beside the text: a default system prompt, tool instructions, role marks. */
const templateTokens = 512;
/** More than any wallet holds: asks what a request would want if money did not matter. */
const unlimitedMicroUsd = 10n ** 30n;

function promptTokensMax({ bodyBytes, hasMedia, inputs, prompts, contextLength }: RequestSize): number {
  // The bytes bound all contexts together, and media in them have no tokens of their own.
  if (inputs === 'texts') return bodyBytes + templateTokens;
  const bytes = hasMedia ? Number.POSITIVE_INFINITY : bodyBytes + templateTokens;
  if (inputs === 'pairs') return prompts * Math.min(bytes, contextLength);
  return Math.min(bytes, prompts * contextLength);
}

function outputTokensMax({ outputTokensAsked, isLimitKept, outputTokensDefault, contextLength }: RequestSize): number {
  if (outputTokensAsked !== null && !isLimitKept) return contextLength;
  return Math.min(outputTokensAsked ?? outputTokensDefault ?? contextLength, contextLength);
}

/** Output tokens counted for a request that names no limit, until its real count is known. */
const outputTokensGuess = 256;
const bytesPerToken = 4;

/** The body's bytes over 4. */
export function estimatePromptTokens({ bodyBytes }: Pick<RequestSize, 'bodyBytes'>): number {
  return Math.ceil(bodyBytes / bytesPerToken);
}

function estimateOutputTokens({ outputTokensAsked, choices, prompts }: RequestSize, perChoiceMax: number): number {
  return Math.min(outputTokensAsked ?? outputTokensGuess, perChoiceMax) * choices * prompts;
}

/**
 * The tokens that a request will likely use, input and output together: what limits on tokens reserve for it.
 * @param perChoiceMax output tokens that it may have per choice
 */
export function estimateTokens(size: RequestSize, perChoiceMax: number): number {
  return estimatePromptTokens(size) + estimateOutputTokens(size, perChoiceMax);
}

/** What a request costs if its estimate is right, in pico-dollars. */
export function estimateCost(size: RequestSize, price: TokenPrice, perChoiceMax: number): bigint {
  return (
    estimatedPromptCost(size, price) + BigInt(estimateOutputTokens(size, perChoiceMax)) * price.outputPerMTokMicroUsd
  );
}

function estimatedPromptCost(size: RequestSize, price: TokenPrice): bigint {
  return BigInt(estimatePromptTokens(size)) * price.inputPerMTokMicroUsd;
}

/** A cap on a request's cost that pays for too little of it, by estimate. */
export interface CapRefusal {
  readonly ok: false;
  readonly code: 'cap_too_low';
  readonly capPicoUsd: bigint;
  readonly promptPicoUsd: bigint;
  /** The prompt, and one token per choice where any are made. */
  readonly neededPicoUsd: bigint;
}

/** The bounds of one request. */
export interface CostBounds {
  readonly ok: true;
  readonly request: Omit<HoldRequest, 'availableMicroUsd'>;
  /** Per choice. */
  readonly outputTokens: number;
  /** `outputTokens` where the caller's cap limits them, else null. */
  readonly cappedTo: number | null;
  /** The hold can follow the answer; otherwise it is the worst case, as for a JSON answer. */
  readonly extends: boolean;
}

export interface CostTerms {
  readonly size: RequestSize;
  readonly price: TokenPrice;
  /** What the caller pays at most, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  readonly extends: boolean;
}

export function costBounds({ size, price, capPicoUsd, extends: follows }: CostTerms): CostBounds | CapRefusal {
  const outputTokens = outputTokensMax(size);
  const cappedTo = capPicoUsd === null ? null : capOutput(size, price, capPicoUsd, outputTokens);
  if (cappedTo !== null && typeof cappedTo === 'object') return cappedTo;
  const choices = BigInt(size.choices * size.prompts);
  const request = { promptTokensMax: BigInt(promptTokensMax(size)), choices, price };
  return { ok: true, request, outputTokens: cappedTo ?? outputTokens, cappedTo, extends: follows };
}

/** Output tokens per choice that a cap pays for beside the prompt's estimate; null where it pays for all of them. */
function capOutput(
  size: RequestSize,
  price: TokenPrice,
  capPicoUsd: bigint,
  tokensMax: number,
): number | CapRefusal | null {
  const promptPicoUsd = estimatedPromptCost(size, price);
  const step = BigInt(size.choices * size.prompts) * price.outputPerMTokMicroUsd;
  const neededPicoUsd = promptPicoUsd + (tokensMax > 0 ? step : 0n);
  if (neededPicoUsd > capPicoUsd) return { ok: false, code: 'cap_too_low', capPicoUsd, promptPicoUsd, neededPicoUsd };
  if (step === 0n) return null;
  const affordable = (capPicoUsd - promptPicoUsd) / step;
  return affordable < BigInt(tokensMax) ? Number(affordable) : null;
}

/** The hold for a request where so much is available. */
export function holdFor({ request, outputTokens, extends: follows }: CostBounds, availableMicroUsd: bigint) {
  const asked = { ...request, availableMicroUsd, outputTokensMax: BigInt(outputTokens) };
  return follows ? holdForStream(asked) : holdForJson(asked);
}

/** What a request would hold if money did not matter, and the least it needs: its prompt and one token per choice. */
export function holdBounds(bounds: CostBounds): { readonly wantedMicroUsd: bigint; readonly neededMicroUsd: bigint } {
  const wanted = holdFor(bounds, unlimitedMicroUsd);
  const least = holdFor({ ...bounds, outputTokens: Math.min(1, bounds.outputTokens) }, unlimitedMicroUsd);
  return {
    wantedMicroUsd: wanted.refused ? wanted.neededMicroUsd : wanted.holdMicroUsd,
    neededMicroUsd: least.refused ? least.neededMicroUsd : least.holdMicroUsd,
  };
}

/** What a request may cost at most, whatever the wallet has, in pico-dollars. */
export function worstCost({ request, outputTokens }: CostBounds): bigint {
  const { promptTokensMax: prompt, choices, price } = request;
  return prompt * promptTokenPrice(price) + choices * BigInt(outputTokens) * price.outputPerMTokMicroUsd;
}
