import { ceilToMicroUsd } from '#base/money.ts';
import {
  holdForJson,
  holdForStream,
  promptTokenPrice,
  type HoldRequest,
  type TokenPrice,
} from '#core/wallet/wallet.ts';

/**
 * Three views of what a request costs, before an engine has counted it.
 *
 * - The hold guesses high: a token is at least one byte of the body, plus what the chat template adds. Media have tokens
 *   that are not in the text, so a prompt with media holds the context. The hold is extended once the count is known.
 *   What the model was seen to add is held as well where there is the money for it, and refuses nothing: it may be from
 *   a request of another kind.
 * - The ceiling bounds the charge: no prompt is longer than the context, no answer longer than its limit or the context,
 *   each in every turn, and nothing passes the caller's cap. It keeps out counts that cannot be true.
 * - The estimate is what the request will likely use. Token limits reserve it, and caps are divided by it.
 */

/** What of a request decides its cost. */
export interface RequestSize {
  /** Length of its body. */
  readonly bodyBytes: number;
  /** Bytes of the body that are no text of a prompt: media, the form of the answer, token ids. */
  readonly unreadBytes: number;
  /** Token ids of its prompts: each is one token. */
  readonly tokenIds: number;
  /** Its prompts are all in the body, as text: no media, no earlier response that the engine has stored. */
  readonly isBoundByBytes: boolean;
  /** The most tokens per prompt that the model was seen to add to the text: see `PromptOverheads`. */
  readonly overheadTokens: number;
  /**
   * What one of its prompts is: `prompts` share the bytes of the body; `pairs` have one text in common, which counts in
   * each; `texts` are many contexts in one prompt.
   */
  readonly inputs: 'prompts' | 'pairs' | 'texts';
  readonly prompts: number;
  /** Inputs that each may fill the model's context. */
  readonly contexts: number;
  /** Choices per prompt. */
  readonly choices: number;
  /** Times that its engine may read its prompts and answer: more than once where it runs tools itself. */
  readonly turns: number;
  /** Output tokens per choice that it asks for; null where it names no limit. */
  readonly outputTokensAsked: number | null;
  /** Whether its engine is known to keep to that limit; else it may make what its context holds. */
  readonly isLimitKept: boolean;
  /** Output tokens per choice where it names no limit: 0 where none are made, null for as many as the context holds. */
  readonly outputTokensDefault: number | null;
  /** Tokens that the model's context holds. */
  readonly contextLength: number;
}

/** Tokens that chat templates add beside the text. */
const templateTokens = 512;
/** More than any wallet holds: asks what a request would want if money did not matter. */
const unlimitedMicroUsd = 10n ** 30n;

/** Tokens of all its prompts that a request can have at most. */
function promptTokensMost({ contexts, contextLength }: RequestSize): number {
  return contexts * contextLength;
}

/** Tokens of all its prompts that it holds for. @param overheadTokens what the model adds to each at most */
function promptTokensHeld(size: RequestSize, overheadTokens: number): number {
  const { bodyBytes, isBoundByBytes, inputs, prompts, contexts, contextLength } = size;
  const most = promptTokensMost(size);
  if (!isBoundByBytes) return most;
  if (inputs === 'pairs') {
    return prompts * Math.min(bodyBytes + Math.max(templateTokens, overheadTokens), contextLength);
  }
  return Math.min(bodyBytes + Math.max(templateTokens, overheadTokens * contexts), most);
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

/**
 * What is billed where no count came: the prompt's estimate without what is no text of it, and the most that the output may have.
 */
export function likelyTokens(size: RequestSize): { readonly promptTokens: number; readonly outputTokensMax: number } {
  const textBytes = Math.max(0, size.bodyBytes - size.unreadBytes);
  const tokens = estimatePromptTokens({ bodyBytes: textBytes }) + size.tokenIds;
  const promptTokens = Math.min(tokens, promptTokensMost(size));
  return { promptTokens, outputTokensMax: outputTokensMax(size) * size.choices * size.prompts * size.turns };
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

/** What a request costs if its estimate is right and its model adds what it was seen to add, in pico-dollars. */
export function estimateCost(size: RequestSize, price: TokenPrice, perChoiceMax: number): bigint {
  const promptTokens = Math.min(
    estimatePromptTokens(size) + size.overheadTokens * size.contexts,
    promptTokensMost(size),
  );
  const outputTokens = estimateOutputTokens(size, perChoiceMax);
  return BigInt(promptTokens) * price.inputPerMTokMicroUsd + BigInt(outputTokens) * price.outputPerMTokMicroUsd;
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

/** What the charge of one request is bounded by. */
export interface CostCeiling {
  /** Tokens of all its prompts. */
  readonly promptTokens: bigint;
  /** Over all choices. */
  readonly outputTokens: bigint;
  /** In pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
}

/** The bounds of one request. */
export interface CostBounds {
  readonly ok: true;
  /** The least that it holds for. */
  readonly request: Omit<HoldRequest, 'availableMicroUsd'>;
  /** Tokens of all its prompts with what the model was seen to add to them. */
  readonly promptTokensWanted: bigint;
  /** Per choice. */
  readonly outputTokens: number;
  /** `outputTokens` where the caller's cap limits them, else null. */
  readonly cappedTo: number | null;
  /** The hold can follow the answer; otherwise it is for all that is asked for, as of a JSON answer. */
  readonly extends: boolean;
  /** Output tokens per choice that are held for at least. */
  readonly outputTokensLeast: number;
  readonly ceiling: CostCeiling;
}

export interface CostTerms {
  readonly size: RequestSize;
  readonly price: TokenPrice;
  /** What the caller pays at most, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  readonly extends: boolean;
  /** It waits for money for all the output that it asks for, where it says how much, rather than have less. */
  readonly isWhole?: boolean;
}

export function costBounds({
  size,
  price,
  capPicoUsd,
  extends: follows,
  isWhole = false,
}: CostTerms): CostBounds | CapRefusal {
  const outputTokens = outputTokensMax(size);
  const cappedTo = capPicoUsd === null ? null : capOutput(size, price, capPicoUsd, outputTokens);
  if (cappedTo !== null && typeof cappedTo === 'object') return cappedTo;
  const choices = BigInt(size.choices * size.prompts);
  const ceiling = {
    promptTokens: BigInt(size.turns * promptTokensMost(size)),
    outputTokens: BigInt(size.turns) * choices * BigInt(outputTokens),
    capPicoUsd,
  };
  const request = { promptTokensMax: BigInt(promptTokensHeld(size, 0)), choices, price };
  const promptTokensWanted = BigInt(promptTokensHeld(size, size.overheadTokens));
  const outputTokensHeld = cappedTo ?? outputTokens;
  const outputTokensLeast = Math.min(isWhole ? (size.outputTokensAsked ?? 1) : 1, outputTokensHeld);
  const limits = { outputTokens: outputTokensHeld, outputTokensLeast, cappedTo };
  return { ok: true, request, promptTokensWanted, ...limits, extends: follows, ceiling };
}

/** What a request may be charged at most, in pico-dollars. */
export function ceilingCost({ promptTokens, outputTokens, capPicoUsd }: CostCeiling, price: TokenPrice): bigint {
  const most = promptTokens * promptTokenPrice(price) + outputTokens * price.outputPerMTokMicroUsd;
  return capPicoUsd !== null && capPicoUsd < most ? capPicoUsd : most;
}

/** Output tokens per choice that a cap pays for beside the prompt's estimate; null where it pays for all of them. */
function capOutput(
  size: RequestSize,
  price: TokenPrice,
  capPicoUsd: bigint,
  tokensMax: number,
): number | CapRefusal | null {
  const promptPicoUsd = BigInt(estimatePromptTokens(size)) * price.inputPerMTokMicroUsd;
  const step = BigInt(size.choices * size.prompts) * price.outputPerMTokMicroUsd;
  const neededPicoUsd = promptPicoUsd + (tokensMax > 0 ? step : 0n);
  if (neededPicoUsd > capPicoUsd) return { ok: false, code: 'cap_too_low', capPicoUsd, promptPicoUsd, neededPicoUsd };
  if (step === 0n) return null;
  const affordable = (capPicoUsd - promptPicoUsd) / step;
  return affordable < BigInt(tokensMax) ? Number(affordable) : null;
}

/** The hold for a request where so much is available, which is less than it wants. */
export function holdFor({ request, outputTokens, extends: follows }: CostBounds, availableMicroUsd: bigint) {
  const asked = { ...request, availableMicroUsd, outputTokensMax: BigInt(outputTokens) };
  return follows ? holdForStream(asked) : holdForJson(asked);
}

/**
 * What a request would hold if money did not matter, and the least it needs: its prompt and one token per choice, or all
 * that it asks for. The caller's cap bounds both.
 */
export function holdBounds(bounds: CostBounds): { readonly wantedMicroUsd: bigint; readonly neededMicroUsd: bigint } {
  const wanted = holdFor(wantedOf(bounds), unlimitedMicroUsd);
  const least = holdFor({ ...bounds, outputTokens: bounds.outputTokensLeast }, unlimitedMicroUsd);
  const capped = belowCap(bounds.ceiling);
  return {
    wantedMicroUsd: capped(wanted.refused ? wanted.neededMicroUsd : wanted.holdMicroUsd),
    neededMicroUsd: capped(least.refused ? least.neededMicroUsd : least.holdMicroUsd),
  };
}

const wantedOf = (bounds: CostBounds): CostBounds => ({
  ...bounds,
  request: { ...bounds.request, promptTokensMax: bounds.promptTokensWanted },
});

function belowCap({ capPicoUsd }: CostCeiling): (microUsd: bigint) => bigint {
  if (capPicoUsd === null) return (microUsd) => microUsd;
  const most = ceilToMicroUsd(capPicoUsd);
  return (microUsd) => (microUsd < most ? microUsd : most);
}

/** Cost of the guessed prompt and of all the output that it may have, both in every turn, in pico-dollars. */
export function worstCost({ turns }: Pick<RequestSize, 'turns'>, bounds: CostBounds): bigint {
  const { choices, price } = bounds.request;
  const { ceiling } = bounds;
  const promptTokens = BigInt(turns) * bounds.promptTokensWanted;
  const outputTokens = BigInt(turns) * choices * BigInt(bounds.outputTokens);
  const { capPicoUsd } = ceiling;
  return ceilingCost({ promptTokens, outputTokens, capPicoUsd }, price);
}
