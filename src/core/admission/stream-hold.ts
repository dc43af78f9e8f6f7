import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';
import { promptTokenPrice, STREAM_OUTPUT_TOKENS_AHEAD, type TokenPrice } from '#core/wallet/wallet.ts';
import type { Admission } from './contract.ts';

/**
 * The hold of a running stream. It pays for the prompt and some output ahead; it is extended before that is used up,
 * and when the wallet has nothing more the stream must end where the hold does.
 */
export interface StreamHold {
  /** In pico-dollars, extensions included. */
  readonly heldPicoUsd: bigint;
  /** Told of the counts so far; false when the next token is not paid for. */
  covers(inputTokens: number, outputTokens: number): boolean;
}

export interface StreamHoldOptions {
  readonly admission: Admission;
  readonly requestId: string;
  readonly heldMicroUsd: bigint;
  readonly price: TokenPrice;
  readonly promptTokensMax: bigint;
  readonly prompts: number;
  /** Choices over all prompts. */
  readonly choices: number;
  /** Output tokens over all choices that the request may have. */
  readonly outputTokensMax: number;
}

/** Choices make one token each per step of the engine, and some steps pass while an extension is asked for. */
const extendAheadTokens = 128;

export function createStreamHold(options: StreamHoldOptions): StreamHold {
  const { admission, requestId, price, choices } = options;
  const outputPrice = price.outputPerMTokMicroUsd;
  const stepTokens = choices * Number(STREAM_OUTPUT_TOKENS_AHEAD);
  let heldMicroUsd = options.heldMicroUsd;
  let promptTokens = options.promptTokensMax;
  let promptKnown = false;
  let paidTokens = countPaid();
  let extending = false;
  let exhausted = false;

  /** Output tokens that the hold pays for; Infinity where they cost nothing or where the request ends before. */
  function countPaid(): number {
    if (outputPrice === 0n) return Number.POSITIVE_INFINITY;
    const left = heldMicroUsd * PICO_PER_MICRO - promptTokens * promptTokenPrice(price);
    const paid = left <= 0n ? 0 : Number(left / outputPrice);
    return paid >= options.outputTokensMax ? Number.POSITIVE_INFINITY : paid;
  }

  function added(microUsd: bigint): void {
    extending = false;
    if (microUsd === 0n) exhausted = true;
    heldMicroUsd += microUsd;
    paidTokens = countPaid();
  }

  /**
   * By a step beyond what is made: one read of a fast engine's answer may bring more tokens than a step. Never to more
   * than the request allows, whatever an engine says that it made.
   */
  function extend(outputTokens: number): void {
    extending = true;
    const wanted = Math.max(0, outputTokens - paidTokens) + stepTokens;
    const tokens = Math.min(wanted, options.outputTokensMax - paidTokens);
    const answer = admission.extend(requestId, ceilToMicroUsd(BigInt(tokens) * outputPrice));
    if (answer instanceof Promise) answer.then(added, () => added(0n));
    else added(answer);
  }

  return {
    covers(inputTokens, outputTokens) {
      // With several prompts, a running count is of one of them.
      if (!promptKnown && inputTokens > 0 && options.prompts === 1) {
        promptKnown = true;
        promptTokens = BigInt(inputTokens);
        paidTokens = countPaid();
      }
      if (outputTokens + extendAheadTokens * choices <= paidTokens) return true;
      if (!extending && !exhausted) extend(outputTokens);
      // While the answer to an extension is on its way nothing says yet that the wallet cannot pay.
      return outputTokens < paidTokens || extending;
    },
    get heldPicoUsd() {
      return heldMicroUsd * PICO_PER_MICRO;
    },
  };
}
