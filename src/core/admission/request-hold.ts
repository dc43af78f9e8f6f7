import { ceilToMicroUsd, PICO_PER_MICRO } from '#base/money.ts';
import {
  type Admission,
  ceilingCost,
  type CostCeiling,
  type Extension,
  type HardBudget,
} from '#core/admission/contract/contract.ts';
import { promptTokenPrice, STREAM_OUTPUT_TOKENS_AHEAD, type TokenPrice } from '#core/wallet/wallet.ts';

/**
 * The hold of a running request. It is a guess, never the bill: it is extended while a stream runs, before the amount
 * held is used up, and at the end of each request to the actual cost. A request is charged at most its hold, so the
 * rest is written off only if wallet, budgets or the caller's cap have nothing more. If it is unknown whether they have
 * more, all of it is charged: the database charges what the wallet has, and writes off the rest.
 */
export interface RequestHold {
  /** In pico-dollars, extensions included. */
  readonly heldPicoUsd: bigint;
  /**
   * Most that may be charged now, in pico-dollars: the hold, or all if `isUnknown`, up to the ceiling of the request.
   */
  readonly chargeMaxPicoUsd: bigint;
  /** Bounds of its charge. */
  readonly ceiling: CostCeiling;
  /** Updates the counts of a stream; returns false if the next token is not paid for. */
  covers(made: MadeSoFar): boolean;
  /** True if the last extension could not find out whether the wallet has more. */
  readonly isUnknown: boolean;
  /** The budget that had nothing more at the last extension; null if it was the wallet. */
  readonly exhausted: HardBudget | null;
  /** True if the caller's cap is used up, so that no extension was requested. */
  readonly isCapped: boolean;
  /**
   * Extends the hold to the cost of the whole answer, up to the ceiling of the request, as far as wallet and budgets
   * have it.
   * @returns null if there is nothing to wait for
   */
  cover(costPicoUsd: bigint): Promise<void> | null;
  /**
   * Extends the hold to the most that a stream can cost until it is read again: its whole turn, since the engine begins
   * no other turn meanwhile.
   * @param outputTokens output tokens so far over all choices
   * @returns true if that cost is paid for
   */
  coverTurn(outputTokens: number): Promise<boolean>;
}

/** The counts of a stream so far, as its meter has them. */
export interface MadeSoFar {
  /** Tokens of the prompt as the engine counted them, 0 before the first count. */
  readonly inputTokens: number;
  /** Those of them that the engine had cached, as far as it has reported them. */
  readonly cachedTokens: number;
  /** Output tokens over all choices, as far as they can be guessed. */
  readonly likelyTokens: number;
}

export interface RequestHoldOptions {
  readonly admission: Admission;
  readonly requestId: string;
  readonly heldMicroUsd: bigint;
  readonly price: TokenPrice;
  /** Tokens of all prompts that are held for until one is counted. */
  readonly promptTokens: bigint;
  readonly prompts: number;
  /** Choices over all prompts. */
  readonly choices: number;
  /** Output tokens over all choices at which the engine stops by itself. */
  readonly outputTokensMax: number;
  /** Output tokens over all choices at which the engine stops by itself in one turn. */
  readonly turnTokensMax: number;
  readonly ceiling: CostCeiling;
}

/**
 * Output tokens ahead of which an extension is requested. Choices make one token each per step of the engine, and some
 * steps pass during the request.
 */
const extendAheadTokens = 128;

/** The amount of a hold, with its extension on its way. */
class HeldMoney {
  microUsd: bigint;
  /** True if wallet or budget has nothing more. */
  isExhausted = false;
  /** The budget with nothing more. */
  exhausted: HardBudget | null = null;
  /** True if it is unknown whether there is more. */
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
   * Waits for the extension on its way, and requests the missing amount then: an empty wallet or budget may have been
   * filled since. An answer that brings only a part does not say that the rest is missing, so the rest is requested
   * again.
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

/** A hold that is measured by the tokens that it pays for. */
class TokenHold implements RequestHold {
  readonly #options: RequestHoldOptions;
  readonly #money: HeldMoney;
  readonly #ceilingPicoUsd: bigint;
  #promptPicoUsd: bigint;
  #promptKnown = false;
  /** Output tokens that the hold pays for; Infinity if they cost nothing or if the request ends before. */
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
    // With several prompts, a running count covers only one of them.
    if (!this.#promptKnown && inputTokens > 0 && this.#options.prompts === 1) {
      this.#notePrompt(inputTokens, cachedTokens);
    }
    if (outputTokens + extendAheadTokens * this.#options.choices <= this.#paidTokens) return true;
    if (!money.isExtending && this.#isToExtend(outputTokens)) this.#extend(outputTokens);
    // A part that does not pay for the tokens so far does not say whether wallet or budget has nothing more.
    if (!money.isExtending && !money.isExhausted && outputTokens >= this.#paidTokens) this.#extend(outputTokens);
    // The last token that a cap pays for may be the last one that was asked for.
    if (outputTokens < this.#paidTokens || (this.isCapped && outputTokens === this.#paidTokens)) return true;
    // While an extension is on its way, the wallet may still be able to pay.
    return money.isExtending && !money.isUnknown;
  }

  /**
   * True if an extension shall be requested. An exhausted wallet or budget may be filled meanwhile, so it is asked
   * again, each time at half of the tokens that are still paid for.
   */
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

  /** Returns the cost with this number of output tokens, as far as it may be charged. */
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
   * Requests an extension to a step beyond the current output: one read of a fast engine's answer may bring more tokens
   * than a step. The extension also pays for a prompt that has more tokens than were held for.
   */
  #extend(outputTokens: number): void {
    const stepTokens = this.#options.choices * Number(STREAM_OUTPUT_TOKENS_AHEAD);
    const missing = this.#costWith(Math.max(outputTokens, this.#paidTokens) + stepTokens) - this.#money.picoUsd;
    this.#askAgainAt = outputTokens + Math.max(1, Math.ceil((this.#paidTokens - outputTokens) / 2));
    if (missing > 0n) this.#money.extend(missing);
  }
}
