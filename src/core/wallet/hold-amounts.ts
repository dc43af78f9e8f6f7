import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';

/**
 * What a hold may be, as pure arithmetic. A price in micro-dollars per million tokens is the price of one token in
 * pico-dollars; holds are whole micro-dollars, rounded up, so that the cost of what they cover never passes them.
 */

/** Output tokens per choice that a stream holds ahead; it extends its hold while it runs. */
export const STREAM_OUTPUT_TOKENS_AHEAD = 512n;

/** Micro-dollars per million tokens, which are pico-dollars per token. */
export interface TokenPrice {
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
}

export interface HoldRequest {
  /** Balance less what other requests hold; may be negative. */
  readonly availableMicroUsd: bigint;
  /** Upper bound of the prompt's tokens. */
  readonly promptTokensMax: bigint;
  /** Choices asked for, all prompts together. */
  readonly choices: bigint;
  readonly price: TokenPrice;
}

/** `neededMicroUsd` pays for the prompt's bound and one output token per choice. */
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

/** `outputTokensMax`: output tokens per choice that the request may have; `cut` when that is less than it asked for. */
interface JsonHold {
  readonly refused: false;
  readonly holdMicroUsd: bigint;
  readonly outputTokensMax: bigint;
  readonly cut: boolean;
}

/**
 * A stream holds its prompt's bound plus 512 output tokens per choice, or fewer where its own limit is lower, or all
 * that is available where that still pays for the prompt and one token per choice.
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
 * A JSON answer cannot be cut once it runs, so its worst case is held; its limit goes down to what is available.
 * @param request `outputTokensMax`: the limit per choice, the rest of the model's context where the client set none
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
 * Pico-dollars that a token of a prompt costs at most. Which part of it is cached is known at the end only, so the
 * dearer of both prices bounds it.
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

/** Output tokens per choice that `available` pays for beside the prompt; asked only where it does not pay for all. */
function affordableTokens(request: HoldRequest): bigint {
  const pricePerStepPicoUsd = request.choices * request.price.outputPerMTokMicroUsd;
  const restPicoUsd = request.availableMicroUsd * PICO_PER_MICRO - promptCostPicoUsd(request);
  return pricePerStepPicoUsd === 0n || restPicoUsd < 0n ? 0n : restPicoUsd / pricePerStepPicoUsd;
}

function refusal(request: HoldRequest, limit: bigint): HoldRefused {
  return { refused: true, neededMicroUsd: costMicroUsd(request, least(1n, limit)) };
}

/** The lesser of both, never below zero: a senseless limit is the engine's to refuse. */
function least(a: bigint, b: bigint): bigint {
  const lesser = a < b ? a : b;
  return lesser > 0n ? lesser : 0n;
}
