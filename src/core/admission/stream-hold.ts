import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';
import { promptTokenPrice, STREAM_OUTPUT_TOKENS_AHEAD, type TokenPrice } from '#core/wallet/wallet.ts';
import type { Admission, Extension, HardBudget } from './contract.ts';

/**
 * The hold of a running stream. It pays for the prompt and some output ahead; it is extended before that is used up,
 * and when the wallet has nothing more the stream must end where the hold does.
 */
export interface StreamHold {
  /** In pico-dollars, extensions included. */
  readonly heldPicoUsd: bigint;
  /** Told of the counts so far; false when the next token is not paid for. */
  covers(inputTokens: number, outputTokens: number): boolean;
  /** Whether nobody could say if the wallet has more, when it was asked last. */
  readonly isUnknown: boolean;
  /** The budget that had nothing more, when it was asked last; null where it was the wallet. */
  readonly exhausted: HardBudget | null;
  /**
   * Holds what the whole answer costs, as far as the wallet has it and the request allows it, whatever an engine says
   * that it made; to be called when it is complete.
   * @returns null where nothing must be waited for
   */
  cover(costPicoUsd: bigint): Promise<void> | null;
  /**
   * Holds what the request can cost at most, for while nobody counts what its engine makes.
   * @returns whether that is paid for
   */
  coverMost(): Promise<boolean>;
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

/** The money of a hold, and more of it on its way. */
class HeldMoney {
  microUsd: bigint;
  /** Wallet or budget has nothing more. */
  isExhausted = false;
  /** It is this budget that has not. */
  exhausted: HardBudget | null = null;
  /** Nobody could say whether it has. */
  isUnknown = false;
  #extending: Promise<void> | null = null;
  readonly #options: StreamHoldOptions;
  readonly #onAdded: () => void;

  constructor(options: StreamHoldOptions, onAdded: () => void) {
    this.microUsd = options.heldMicroUsd;
    this.#options = options;
    this.#onAdded = onAdded;
  }

  get picoUsd(): bigint {
    return this.microUsd * PICO_PER_MICRO;
  }

  get isExtending(): boolean {
    return this.#extending !== null;
  }

  extend(picoUsd: bigint): void {
    const { admission, requestId } = this.#options;
    const answer = admission.extend(requestId, ceilToMicroUsd(picoUsd));
    if (!(answer instanceof Promise)) return this.#added(answer);
    this.#extending = answer.then(
      (microUsd) => this.#added(microUsd),
      () => this.#added(null),
    );
  }

  /** Waits for what is on its way, and asks for what is missing then. */
  async cover(costPicoUsd: bigint): Promise<void> {
    await this.#extending;
    if (costPicoUsd > this.picoUsd && !this.isExhausted) this.extend(costPicoUsd - this.picoUsd);
    await this.#extending;
  }

  #added(microUsd: Extension): void {
    this.#extending = null;
    this.isUnknown = microUsd === null;
    if (typeof microUsd === 'bigint') this.microUsd += microUsd;
    else this.exhausted = microUsd;
    if (microUsd === 0n || this.exhausted !== null) this.isExhausted = true;
    this.#onAdded();
  }
}

export function createStreamHold(options: StreamHoldOptions): StreamHold {
  const { price, choices } = options;
  const outputPrice = price.outputPerMTokMicroUsd;
  const stepTokens = choices * Number(STREAM_OUTPUT_TOKENS_AHEAD);
  const money = new HeldMoney(options, () => (paidTokens = countPaid()));
  let promptTokens = options.promptTokensMax;
  let promptKnown = false;
  let paidTokens = countPaid();

  /** What the request can cost at most. */
  const mostPicoUsd = (): bigint =>
    promptTokens * promptTokenPrice(price) + BigInt(options.outputTokensMax) * outputPrice;

  /** Output tokens that the hold pays for; Infinity where they cost nothing or where the request ends before. */
  function countPaid(): number {
    if (outputPrice === 0n) return Number.POSITIVE_INFINITY;
    const left = money.picoUsd - promptTokens * promptTokenPrice(price);
    const paid = left <= 0n ? 0 : Number(left / outputPrice);
    return paid >= options.outputTokensMax ? Number.POSITIVE_INFINITY : paid;
  }

  /**
   * By a step beyond what is made: one read of a fast engine's answer may bring more tokens than a step. Never to more
   * than the request allows, whatever an engine says that it made.
   */
  function extend(outputTokens: number): void {
    const wanted = Math.max(0, outputTokens - paidTokens) + stepTokens;
    const tokens = Math.min(wanted, options.outputTokensMax - paidTokens);
    money.extend(BigInt(tokens) * outputPrice);
  }

  function cover(costPicoUsd: bigint): Promise<void> | null {
    const isCovered = costPicoUsd <= money.picoUsd || money.isExhausted;
    return isCovered && !money.isExtending ? null : money.cover(costPicoUsd);
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
      if (!money.isExtending && !money.isExhausted) extend(outputTokens);
      // While the answer to an extension is on its way nothing says yet that the wallet cannot pay.
      return outputTokens < paidTokens || (money.isExtending && !money.isUnknown);
    },
    cover(costPicoUsd) {
      const most = options.promptTokensMax * promptTokenPrice(price) + BigInt(options.outputTokensMax) * outputPrice;
      return cover(costPicoUsd < most ? costPicoUsd : most);
    },
    async coverMost() {
      await cover(mostPicoUsd());
      return mostPicoUsd() <= money.picoUsd;
    },
    get isUnknown() {
      return money.isUnknown;
    },
    get exhausted() {
      return money.exhausted;
    },
    get heldPicoUsd() {
      return money.picoUsd;
    },
  };
}
