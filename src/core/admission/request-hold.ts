import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';
import { promptTokenPrice, STREAM_OUTPUT_TOKENS_AHEAD, type TokenPrice } from '#core/wallet/wallet.ts';
import type { Admission, Extension, HardBudget } from './contract.ts';
import { ceilingCost, type CostCeiling } from './request-cost.ts';

/**
 * The hold of a running request. It is a guess, and never the bill: it is extended while a stream runs, before what it
 * pays for is used up, and at the end of each request to what that costs. A request is charged at most its hold, so the
 * rest is written off only where wallet, budgets or the caller's cap have nothing more. Where nobody can say whether they
 * have, all of it is charged: the books take what the wallet has, and write off the rest.
 */
export interface RequestHold {
  /** In pico-dollars, extensions included. */
  readonly heldPicoUsd: bigint;
  /** What may be charged now, in pico-dollars: what is held, or all where `isUnknown`, up to the ceiling of the request. */
  readonly chargeMaxPicoUsd: bigint;
  /** What its charge is bounded by. */
  readonly ceiling: CostCeiling;
  /** Takes the counts of a stream so far; false when the next token is not paid for. */
  covers(made: MadeSoFar): boolean;
  /** Nobody could say if the wallet has more, when it was asked last. */
  readonly isUnknown: boolean;
  /** The budget that had nothing more, when it was asked last; null where it was the wallet. */
  readonly exhausted: HardBudget | null;
  /** The caller's cap is used up, so that nobody was asked for more. */
  readonly isCapped: boolean;
  /**
   * Holds what the whole answer costs, up to the ceiling of the request, as far as wallet and budgets have it.
   * @returns null where nothing must be waited for
   */
  cover(costPicoUsd: bigint): Promise<void> | null;
  /**
   * Holds what a stream comes to at most until somebody reads it again: all of its turn, since the engine begins no other
   * one meanwhile.
   * @param outputTokens made so far over all choices
   * @returns whether that is paid for
   */
  coverTurn(outputTokens: number): Promise<boolean>;
}

/** The counts of a stream so far, as its meter has them. */
export interface MadeSoFar {
  /** Tokens of the prompt as the engine counted them, 0 before the first count. */
  readonly inputTokens: number;
  /** Those of them that it had cached, as far as it says so by now. */
  readonly cachedTokens: number;
  /** Output tokens over all choices, as far as they can be guessed. */
  readonly likelyTokens: number;
}

export interface RequestHoldOptions {
  readonly admission: Admission;
  readonly requestId: string;
  readonly heldMicroUsd: bigint;
  readonly price: TokenPrice;
  /** Tokens of all its prompts that it holds for, until one is counted. */
  readonly promptTokens: bigint;
  readonly prompts: number;
  /** Choices over all prompts. */
  readonly choices: number;
  /** Output tokens over all choices at which the engine stops by itself. */
  readonly outputTokensMax: number;
  /** The same of one of its turns. */
  readonly turnTokensMax: number;
  readonly ceiling: CostCeiling;
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
  readonly #options: RequestHoldOptions;
  readonly #onAdded: () => void;

  constructor(options: RequestHoldOptions, onAdded: () => void) {
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

  /**
   * Waits for what is on its way, and asks for what is missing then: what was used up may have been filled since. An
   * answer that brings a part says nothing of the rest, which is asked for again.
   */
  async cover(costPicoUsd: bigint): Promise<void> {
    await this.#extending;
    for (let before = -1n; before < this.microUsd && costPicoUsd > this.picoUsd;) {
      before = this.microUsd;
      this.extend(costPicoUsd - this.picoUsd);
      await this.#extending;
    }
  }

  #added(microUsd: Extension): void {
    this.#extending = null;
    this.isUnknown = microUsd === null;
    if (typeof microUsd === 'bigint') this.microUsd += microUsd;
    if (microUsd !== null) {
      this.exhausted = typeof microUsd === 'bigint' ? null : microUsd;
      this.isExhausted = microUsd === 0n || this.exhausted !== null;
    }
    this.#onAdded();
  }
}

const lesser = (a: bigint, b: bigint): bigint => (a < b ? a : b);

export function createRequestHold(options: RequestHoldOptions): RequestHold {
  return new TokenHold(options);
}

/** A hold by the tokens that it pays for. */
class TokenHold implements RequestHold {
  readonly #options: RequestHoldOptions;
  readonly #money: HeldMoney;
  readonly #ceilingPicoUsd: bigint;
  #promptPicoUsd: bigint;
  #promptKnown = false;
  /** Output tokens that the hold pays for; Infinity where they cost nothing or where the request ends before. */
  #paidTokens: number;
  /** Output tokens at which an exhausted wallet or budget is asked once more. */
  #askAgainAt = 0;

  constructor(options: RequestHoldOptions) {
    this.#options = options;
    this.#ceilingPicoUsd = ceilingCost(options.ceiling, options.price);
    this.#promptPicoUsd = options.promptTokens * promptTokenPrice(options.price);
    this.#money = new HeldMoney(options, () => {
      this.#paidTokens = this.#countPaid();
    });
    this.#paidTokens = this.#countPaid();
  }

  get heldPicoUsd(): bigint {
    return this.#money.picoUsd;
  }

  get chargeMaxPicoUsd(): bigint {
    return this.#money.isUnknown ? this.#ceilingPicoUsd : lesser(this.#money.picoUsd, this.#ceilingPicoUsd);
  }

  get ceiling(): CostCeiling {
    return this.#options.ceiling;
  }

  get isUnknown(): boolean {
    return this.#money.isUnknown;
  }

  get exhausted(): HardBudget | null {
    return this.#money.exhausted;
  }

  get isCapped(): boolean {
    const { capPicoUsd } = this.#options.ceiling;
    return capPicoUsd !== null && this.#money.picoUsd >= capPicoUsd;
  }

  covers({ inputTokens, cachedTokens, likelyTokens: outputTokens }: MadeSoFar): boolean {
    const money = this.#money;
    // With several prompts, a running count is of one of them.
    if (!this.#promptKnown && inputTokens > 0 && this.#options.prompts === 1) {
      this.#notePrompt(inputTokens, cachedTokens);
    }
    if (outputTokens + extendAheadTokens * this.#options.choices <= this.#paidTokens) return true;
    if (!money.isExtending && this.#isToExtend(outputTokens)) this.#extend(outputTokens);
    // The last token that a cap pays for may be the last one that was asked for.
    if (outputTokens < this.#paidTokens || (this.isCapped && outputTokens === this.#paidTokens)) return true;
    // While the answer to an extension is on its way nothing says yet that the wallet cannot pay.
    return money.isExtending && !money.isUnknown;
  }

  /** What had nothing more may be filled meanwhile, so it is asked again, each time at half of what is still paid. */
  #isToExtend(outputTokens: number): boolean {
    if (!this.#money.isExhausted) return true;
    return outputTokens >= this.#askAgainAt && outputTokens < this.#paidTokens;
  }

  cover(costPicoUsd: bigint): Promise<void> | null {
    const wanted = lesser(costPicoUsd, this.#ceilingPicoUsd);
    return wanted <= this.#money.picoUsd && !this.#money.isExtending ? null : this.#money.cover(wanted);
  }

  async coverTurn(outputTokens: number): Promise<boolean> {
    const most = this.#costWith(outputTokens + this.#options.turnTokensMax);
    await this.cover(most);
    return most <= this.#money.picoUsd;
  }

  #notePrompt(tokens: number, cachedTokens: number): void {
    const { ceiling, price } = this.#options;
    const counted = lesser(BigInt(tokens), ceiling.promptTokens);
    const cached = lesser(BigInt(cachedTokens), counted);
    this.#promptKnown = true;
    this.#promptPicoUsd = (counted - cached) * promptTokenPrice(price) + cached * price.cachedInputPerMTokMicroUsd;
    this.#paidTokens = this.#countPaid();
  }

  /** What it costs with so many output tokens, as far as it may be charged. */
  #costWith(outputTokens: number): bigint {
    const { price, outputTokensMax } = this.#options;
    const output = BigInt(Math.min(outputTokens, outputTokensMax)) * price.outputPerMTokMicroUsd;
    return lesser(this.#ceilingPicoUsd, this.#promptPicoUsd + output);
  }

  #countPaid(): number {
    const { price, outputTokensMax } = this.#options;
    if (price.outputPerMTokMicroUsd === 0n) return Number.POSITIVE_INFINITY;
    const left = lesser(this.#money.picoUsd, this.#ceilingPicoUsd) - this.#promptPicoUsd;
    const paid = left <= 0n ? 0 : Number(left / price.outputPerMTokMicroUsd);
    return paid >= outputTokensMax ? Number.POSITIVE_INFINITY : paid;
  }

  /**
   * To a step beyond what is made: one read of a fast engine's answer may bring more tokens than a step. A prompt that
   * has more tokens than was held for is paid on the way.
   */
  #extend(outputTokens: number): void {
    const stepTokens = this.#options.choices * Number(STREAM_OUTPUT_TOKENS_AHEAD);
    const missing = this.#costWith(Math.max(outputTokens, this.#paidTokens) + stepTokens) - this.#money.picoUsd;
    this.#askAgainAt = outputTokens + Math.max(1, Math.ceil((this.#paidTokens - outputTokens) / 2));
    if (missing > 0n) this.#money.extend(missing);
  }
}
