import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';

/**
 * Computes the amounts of holds. A price in micro-dollars per million tokens equals the price of one token in
 * pico-dollars. Holds are whole micro-dollars, rounded up, so that the cost of the held tokens never exceeds the hold.
 */

/** Output tokens per choice that a stream holds ahead; the stream extends its hold as it runs. */
export const STREAM_OUTPUT_TOKENS_AHEAD = 512n;

/** Prices in micro-dollars per million tokens, which equal pico-dollars per token. */
export interface TokenPrice {
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
}

export interface HoldRequest {
  /** Balance minus the holds of other requests; may be negative. */
  readonly availableMicroUsd: bigint;
  /** Upper bound of the prompt's tokens. */
  readonly promptTokensMax: bigint;
  /** Number of choices in all prompts together. */
  readonly choices: bigint;
  readonly price: TokenPrice;
}

/**
 * Result for a balance that is too low. `neededMicroUsd` pays for the prompt's bound and one output token per choice.
 */
export interface HoldRefused {
  readonly refused: true;
  readonly neededMicroUsd: bigint;
}

/** `outputTokens`: output tokens per choice that the hold pays for. */
interface StreamHold {
  readonly refused: false;
  readonly holdMicroUsd: bigint;
  readonly outputTokens: bigint;
}

/** `outputTokensMax`: output tokens per choice that the request may use; `cut`: true if it asked for more. */
interface JsonHold {
  readonly refused: false;
  readonly holdMicroUsd: bigint;
  readonly outputTokensMax: bigint;
  readonly cut: boolean;
}

/**
 * Computes the hold of a stream: its prompt's bound plus 512 output tokens per choice, or fewer if the request's own
 * limit is lower. If the balance is too low, the hold is everything available, if that pays for the prompt and one
 * token per choice.
 * @param request `outputTokensMax`: the request's own limit per choice, null without one
 */
export function holdForStream(
  request: HoldRequest & { readonly outputTokensMax: bigint | null },
): StreamHold | HoldRefused {
  const { availableMicroUsd, outputTokensMax } = request;
  const limit = least(STREAM_OUTPUT_TOKENS_AHEAD, outputTokensMax ?? STREAM_OUTPUT_TOKENS_AHEAD);
  const wantedMicroUsd = costMicroUsd(request, limit);
  if (wantedMicroUsd <= availableMicroUsd) return { refused: false, holdMicroUsd: wantedMicroUsd, outputTokens: limit };
  const outputTokens = affordableTokens(request);
  if (outputTokens < 1n) return refusal(request, limit);
  return { refused: false, holdMicroUsd: availableMicroUsd, outputTokens };
}

/**
 * Computes the hold of a JSON answer. A JSON answer cannot be cut once it runs, so the hold is its worst case; the
 * limit is lowered to what the available balance pays for.
 * @param request `outputTokensMax`: the limit per choice; if the client set none, the rest of the model's context
 */
export function holdForJson(request: HoldRequest & { readonly outputTokensMax: bigint }): JsonHold | HoldRefused {
  const { availableMicroUsd } = request;
  const limit = request.outputTokensMax > 0n ? request.outputTokensMax : 0n;
  const wantedMicroUsd = costMicroUsd(request, limit);
  if (wantedMicroUsd <= availableMicroUsd) {
    return { refused: false, holdMicroUsd: wantedMicroUsd, outputTokensMax: limit, cut: false };
  }
  const affordable = affordableTokens(request);
  if (affordable < 1n) return refusal(request, limit);
  return { refused: false, holdMicroUsd: costMicroUsd(request, affordable), outputTokensMax: affordable, cut: true };
}

/**
 * Returns the most that one prompt token can cost, in pico-dollars. The number of cached tokens is known only at the
 * end, so the higher of both prices is the bound.
 */
export function promptTokenPrice(price: TokenPrice): bigint {
  const { inputPerMTokMicroUsd: input, cachedInputPerMTokMicroUsd: cached } = price;
  return input > cached ? input : cached;
}

function promptCostPicoUsd({ promptTokensMax, price }: HoldRequest): bigint {
  return promptTokensMax * promptTokenPrice(price);
}

function costMicroUsd(request: HoldRequest, outputTokens: bigint): bigint {
  const outputPicoUsd = request.choices * outputTokens * request.price.outputPerMTokMicroUsd;
  return ceilToMicroUsd(promptCostPicoUsd(request) + outputPicoUsd);
}

/**
 * Output tokens per choice that the available balance pays for after the prompt. Called only if it cannot pay for all.
 */
function affordableTokens(request: HoldRequest): bigint {
  const pricePerStepPicoUsd = request.choices * request.price.outputPerMTokMicroUsd;
  const restPicoUsd = request.availableMicroUsd * PICO_PER_MICRO - promptCostPicoUsd(request);
  return pricePerStepPicoUsd === 0n || restPicoUsd < 0n ? 0n : restPicoUsd / pricePerStepPicoUsd;
}

function refusal(request: HoldRequest, limit: bigint): HoldRefused {
  return { refused: true, neededMicroUsd: costMicroUsd(request, least(1n, limit)) };
}

/** Returns the lesser of both, never below zero. The engine rejects senseless limits. */
function least(a: bigint, b: bigint): bigint {
  const lesser = a < b ? a : b;
  return lesser > 0n ? lesser : 0n;
}
