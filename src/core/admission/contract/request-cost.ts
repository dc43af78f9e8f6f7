import { ceilToMicroUsd } from '#base/money.ts';
import {
  holdForJson,
  holdForStream,
  promptTokenPrice,
  type HoldRequest,
  type TokenPrice,
} from '#core/wallet/wallet.ts';

/**
 * Three views of the cost of a request, before an engine has counted it.
 *
 * - The hold guesses high: a token is at least one byte of the body, plus what the chat template adds. Media have
 *   tokens that are not in the text, so a prompt with media holds the context. The hold is extended once the count is
 *   known. Tokens that the model was seen to add are held as well if there is money for them, and reject nothing: they
 *   may be from a request of another kind.
 * - The ceiling bounds the charge: no prompt of a generated answer is longer than the context, no answer longer than
 *   its limit or the context, each in every turn, and nothing exceeds the caller's cap. It keeps out counts that cannot
 *   be true.
 * - The estimate is the likely use. Token limits reserve it, and caps are divided by it.
 */

/** The properties of a request that decide its cost. */
export interface RequestSize {
  /** Length of its body. */
  readonly bodyBytes: number;
  /** Bytes of the body that are not text of a prompt: media, the form of the answer, token ids. */
  readonly unreadBytes: number;
  /** Number of token ids in its prompts: each is one token. */
  readonly tokenIds: number;
  /** True if all its prompts are in the body, as text: no media, no earlier response that the engine has stored. */
  readonly isBoundByBytes: boolean;
  /** Most tokens per prompt that the model was seen to add to the text: see `PromptOverheads`. */
  readonly overheadTokens: number;
  /**
   * Kind of its prompts: `prompts` share the bytes of the body; `pairs` have one text in common, which counts in each;
   * `texts` are many contexts in one prompt.
   */
  readonly inputs: 'prompts' | 'pairs' | 'texts';
  readonly prompts: number;
  /** False if its engine only reads the inputs, as for embeddings. */
  readonly generates: boolean;
  /** Number of inputs that may each fill the model's context. */
  readonly contexts: number;
  /** Choices per prompt. */
  readonly choices: number;
  /** Number of times that its engine may read its prompts and answer: more than one if the engine runs tools itself. */
  readonly turns: number;
  /** The same if the engine may run tools that the request does not name: charged if it did, and not held for. */
  readonly turnsPossible: number;
  /** Output tokens per choice that the request asks for; null if it names no limit. */
  readonly outputTokensAsked: number | null;
  /**
   * True if its engine is known to keep to that limit. Otherwise the engine may generate as much as its context holds.
   */
  readonly isLimitKept: boolean;
  /**
   * Output tokens per choice if the request names no limit: 0 if none are generated, null for as many as the context
   * holds.
   */
  readonly outputTokensDefault: number | null;
  /** Tokens that the model's context holds. */
  readonly contextLength: number;
}

/** Tokens that chat templates add to the text. */
const templateTokens = 512;
/** More than any wallet has: gives the hold that a request would want if money did not matter. */
const unlimitedMicroUsd = 10n ** 30n;

/** Returns the most tokens that all prompts of a request can have. */
function promptTokensMost({ contexts, contextLength }: RequestSize): number {
  return contexts * contextLength;
}

/**
 * Returns the tokens of all prompts that are held for. @param overheadTokens most tokens that the model adds to each
 * prompt
 */
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

/** Returns the body's bytes divided by 4. */
export function estimatePromptTokens({ bodyBytes }: Pick<RequestSize, 'bodyBytes'>): number {
  return Math.ceil(bodyBytes / bytesPerToken);
}

/**
 * Returns the billed tokens if no count came: the prompt's estimate without bytes that are not text, and the maximum
 * output.
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
 * Returns the tokens that a request will likely use, input and output together; token limits reserve them.
 * @param perChoiceMax maximum output tokens per choice
 */
export function estimateTokens(size: RequestSize, perChoiceMax: number): number {
  return estimatePromptTokens(size) + estimateOutputTokens(size, perChoiceMax);
}

/**
 * Returns the cost of one turn if the estimate is right and the model adds the tokens that it was seen to add, in
 * pico-dollars. The number of further turns is unknown: `worstCost` covers the most.
 */
export function estimateCost(size: RequestSize, price: TokenPrice, perChoiceMax: number): bigint {
  const promptTokens = Math.min(
    estimatePromptTokens(size) + size.overheadTokens * size.contexts,
    promptTokensMost(size),
  );
  const outputTokens = estimateOutputTokens(size, perChoiceMax);
  return BigInt(promptTokens) * price.inputPerMTokMicroUsd + BigInt(outputTokens) * price.outputPerMTokMicroUsd;
}

/** A cap on a request's cost that is too low, by estimate. */
export interface CapRefusal {
  readonly ok: false;
  readonly code: 'cap_too_low';
  readonly capPicoUsd: bigint;
  readonly promptPicoUsd: bigint;
  /** Cost of the prompt, and of one token per choice if any are generated. */
  readonly neededPicoUsd: bigint;
}

/** Bounds of the charge of one request. */
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
  /** Least hold of the request. */
  readonly request: Omit<HoldRequest, 'availableMicroUsd'>;
  /** Tokens of all its prompts, with the tokens that the model was seen to add. */
  readonly promptTokensWanted: bigint;
  /** Output tokens per choice. */
  readonly outputTokens: number;
  /** `outputTokens` if the caller's cap limits them, else null. */
  readonly cappedTo: number | null;
  /** True if the hold can grow with the answer. Otherwise it covers all that is asked for, as for a JSON answer. */
  readonly extends: boolean;
  /** Least number of output tokens per choice that are held for. */
  readonly outputTokensLeast: number;
  readonly ceiling: CostCeiling;
}

export interface CostTerms {
  readonly size: RequestSize;
  readonly price: TokenPrice;
  /** Most that the caller pays, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  readonly extends: boolean;
  /** True if the request needs money for all the output that it asks for, if it names a limit, rather than get less. */
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
  const ceiling = ceilingOf(size, outputTokens, capPicoUsd);
  const request = { promptTokensMax: BigInt(promptTokensHeld(size, 0)), choices, price };
  const promptTokensWanted = BigInt(promptTokensHeld(size, size.overheadTokens));
  const outputTokensHeld = cappedTo ?? outputTokens;
  const outputTokensLeast = Math.min(isWhole ? (size.outputTokensAsked ?? 1) : 1, outputTokensHeld);
  const limits = { outputTokens: outputTokensHeld, outputTokensLeast, cappedTo };
  return { ok: true, request, promptTokensWanted, ...limits, extends: follows, ceiling };
}

/**
 * Returns the most tokens that an engine may count for all prompts. Engines that only read may divide a text that is
 * longer than the context, and read both texts of a pair.
 */
function promptTokensCounted(size: RequestSize): number {
  const { inputs, contexts, contextLength, bodyBytes, turnsPossible } = size;
  if (size.generates) return turnsPossible * promptTokensMost(size);
  return inputs === 'pairs' ? 2 * contexts * contextLength : Math.max(promptTokensMost(size), bodyBytes);
}

function ceilingOf(size: RequestSize, outputTokens: number, capPicoUsd: bigint | null): CostCeiling {
  const { choices, prompts, turns, turnsPossible, contextLength } = size;
  // vLLM generates one token where none are asked for, and obeys the limit only in the first turn.
  const perTurn = turnsPossible > turns ? contextLength : Math.max(outputTokens, size.outputTokensAsked === 0 ? 1 : 0);
  return {
    promptTokens: BigInt(promptTokensCounted(size)),
    outputTokens: BigInt(turnsPossible * choices * prompts) * BigInt(perTurn),
    capPicoUsd,
  };
}

/** Returns the most that a request may be charged, in pico-dollars. */
export function ceilingCost({ promptTokens, outputTokens, capPicoUsd }: CostCeiling, price: TokenPrice): bigint {
  const most = promptTokens * promptTokenPrice(price) + outputTokens * price.outputPerMTokMicroUsd;
  return capPicoUsd !== null && capPicoUsd < most ? capPicoUsd : most;
}

/**
 * Returns the output tokens per choice that a cap pays for besides the prompt's estimate; null if it pays for all of
 * them.
 */
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

/** Returns the hold for a request if `availableMicroUsd`, less than it wants, is available. */
export function holdFor(bounds: CostBounds, availableMicroUsd: bigint) {
  return hold(bounds, bounds.request.promptTokensMax, bounds.outputTokens, availableMicroUsd);
}

function hold(
  { request: { choices, price }, extends: follows }: CostBounds,
  promptTokensMax: bigint,
  outputTokens: number,
  availableMicroUsd: bigint,
) {
  const asked = { promptTokensMax, choices, price, availableMicroUsd, outputTokensMax: BigInt(outputTokens) };
  return follows ? holdForStream(asked) : holdForJson(asked);
}

/**
 * Returns the hold that a request would want if money did not matter, and the least it needs: its prompt and one token
 * per choice, or all that it asks for. The caller's cap bounds both.
 */
export function holdBounds(bounds: CostBounds): { readonly wantedMicroUsd: bigint; readonly neededMicroUsd: bigint } {
  const wanted = hold(bounds, bounds.promptTokensWanted, bounds.outputTokens, unlimitedMicroUsd);
  const least = hold(bounds, bounds.request.promptTokensMax, bounds.outputTokensLeast, unlimitedMicroUsd);
  const capped = belowCap(bounds.ceiling);
  return {
    wantedMicroUsd: capped(wanted.refused ? wanted.neededMicroUsd : wanted.holdMicroUsd),
    neededMicroUsd: capped(least.refused ? least.neededMicroUsd : least.holdMicroUsd),
  };
}

function belowCap({ capPicoUsd }: CostCeiling): (microUsd: bigint) => bigint {
  if (capPicoUsd === null) return (microUsd) => microUsd;
  const most = ceilToMicroUsd(capPicoUsd);
  return (microUsd) => (microUsd < most ? microUsd : most);
}

/** Returns the cost of the guessed prompt and of the maximum output, both in every turn, in pico-dollars. */
export function worstCost({ turns }: Pick<RequestSize, 'turns'>, bounds: CostBounds): bigint {
  const { choices, price } = bounds.request;
  const { ceiling } = bounds;
  const promptTokens = BigInt(turns) * bounds.promptTokensWanted;
  const outputTokens = BigInt(turns) * choices * BigInt(bounds.outputTokens);
  const { capPicoUsd } = ceiling;
  return ceilingCost({ promptTokens, outputTokens, capPicoUsd }, price);
}
