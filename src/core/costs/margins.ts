import { hoursOf, roundHalfAway, toMicroHours } from './amount.ts';
import type { ReplicaCosts } from './replica-costs.ts';

/** Tokens of a model within a window, by the kinds that have different prices. */
export interface TokenCounts {
  /** Without the tokens that were in the engine's cache. */
  readonly input: bigint;
  readonly cachedInput: bigint;
  readonly output: bigint;
}

/** Whole micro-dollars per million tokens. */
export interface TokenPrices {
  readonly input: bigint;
  readonly cachedInput: bigint;
  readonly output: bigint;
}

/** One model and window: its revenue, and the usage of its replicas. */
export interface MarginInput {
  readonly revenuePicoUsd: bigint;
  readonly tokens: TokenCounts;
  /** Prices as of now; null for a model without prices. */
  readonly prices: TokenPrices | null;
  /** Null if its replicas used nothing, such as external ones. */
  readonly held: Omit<ReplicaCosts, 'engineId'> | null;
  /** Milliseconds times GPUs during which at least one request ran. */
  readonly busyGpuMs: bigint;
}

export interface Margin {
  readonly revenuePicoUsd: bigint;
  /** The known cost: a lower bound while `isComplete` is false. */
  readonly costPicoUsd: bigint;
  /** True if every hour has a price and every price is in USD. If false, no margin follows from the cost. */
  readonly isComplete: boolean;
  /** Revenue minus cost; null if the cost is incomplete. */
  readonly marginPicoUsd: bigint | null;
  /** Margin divided by revenue, six decimal places; null without revenue or without the margin. */
  readonly marginRatio: number | null;
  readonly gpuHours: GpuHours;
  /** Shares of all GPU-hours, six decimal places, with sum 1; null without GPU-hours. */
  readonly shares: GpuShares | null;
  /** Null without tokens or without the margin. */
  readonly costPerMillionTokensPicoUsd: bigint | null;
  /** Null without tokens or without the margin. */
  readonly breakEven: BreakEven | null;
}

export interface GpuHours {
  readonly held: number;
  readonly busy: number;
  readonly idle: number;
  readonly starting: number;
  readonly unrated: number;
}

export type GpuShares = Record<'busy' | 'idle' | 'starting', number>;

/** Prices at which the same tokens would have paid for the cost, in the proportions of today's prices. */
export interface BreakEven extends TokenPrices {
  /**
   * Factor by which today's prices would have to be multiplied, six decimal places, rounded up; null if they are zero.
   */
  readonly factor: number | null;
}

const million = 1_000_000n;
const nothingHeld = { heldGpuMs: 0n, startingGpuMs: 0n, unratedGpuMs: 0n, costPicoUsd: 0n, unconverted: [] };

/** Compares a model's revenue with its cost. Exact until formatting; missing prices are not guessed. */
export function computeMargin(input: MarginInput): Margin {
  const { revenuePicoUsd, tokens, prices } = input;
  const held = input.held ?? nothingHeld;
  const { costPicoUsd } = held;
  const isComplete = held.unratedGpuMs === 0n && held.unconverted.length === 0;
  const marginPicoUsd = isComplete ? revenuePicoUsd - costPicoUsd : null;
  const tokensAll = tokens.input + tokens.cachedInput + tokens.output;
  const perToken = isComplete && tokensAll > 0n;
  return {
    revenuePicoUsd,
    costPicoUsd,
    isComplete,
    marginPicoUsd,
    marginRatio: marginPicoUsd === null ? null : ratioOf(marginPicoUsd, revenuePicoUsd),
    ...splitHeld(held, input.busyGpuMs),
    costPerMillionTokensPicoUsd: perToken ? roundHalfAway(costPicoUsd * million, tokensAll) : null,
    breakEven: perToken ? breakEven(costPicoUsd, tokens, prices) : null,
  };
}

/** Returns a ratio with six decimal places; null if `whole` is not positive. */
function ratioOf(part: bigint, whole: bigint): number | null {
  return whole <= 0n ? null : Number(roundHalfAway(part * million, whole)) / Number(million);
}

/** Splits GPU time. Clocks differ, so busy time beyond the possible serving time is ignored: shares add up to 1. */
function splitHeld(
  { heldGpuMs, startingGpuMs, unratedGpuMs }: Pick<ReplicaCosts, 'heldGpuMs' | 'startingGpuMs' | 'unratedGpuMs'>,
  busyGpuMs: bigint,
): Pick<Margin, 'gpuHours' | 'shares'> {
  const starting = atMost(startingGpuMs, heldGpuMs);
  const busy = atMost(busyGpuMs, heldGpuMs - starting);
  const hours = (ms: bigint): number => hoursOf(toMicroHours(ms));
  const gpuHours = {
    held: hours(heldGpuMs),
    busy: hours(busy),
    idle: hours(heldGpuMs - starting - busy),
    starting: hours(starting),
    unrated: hours(unratedGpuMs),
  };
  if (heldGpuMs === 0n) return { gpuHours, shares: null };
  // Rounds borders instead of shares: three rounded thirds do not add up to 1.
  const busyEnd = roundHalfAway(busy * million, heldGpuMs);
  const idleEnd = million - roundHalfAway(starting * million, heldGpuMs);
  const share = (millionths: bigint): number => Number(millionths) / Number(million);
  // Two halves that were both rounded up have one millionth too much.
  const busyShare = atMost(busyEnd, idleEnd);
  const shares = { busy: share(busyShare), idle: share(idleEnd - busyShare), starting: share(million - idleEnd) };
  return { gpuHours, shares };
}

const atMost = (value: bigint, limit: bigint): bigint => (value < limit ? value : limit);

const ceilDivide = (numerator: bigint, denominator: bigint): bigint => (numerator + denominator - 1n) / denominator;

/**
 * Computes prices that pay for the cost. Tokens at a price of p micro-dollars per million cost tokens × p pico-dollars.
 * So the prices are today's × cost ÷ (tokens × today's), each rounded up to the next micro-dollar, the unit of prices.
 * If the tokens cost nothing today, there are no proportions, and all tokens get the same price.
 */
function breakEven(costPicoUsd: bigint, tokens: TokenCounts, prices: TokenPrices | null): BreakEven {
  const today = prices ?? { input: 0n, cachedInput: 0n, output: 0n };
  const paid = tokens.input * today.input + tokens.cachedInput * today.cachedInput + tokens.output * today.output;
  if (paid === 0n) {
    const flat = ceilDivide(costPicoUsd, tokens.input + tokens.cachedInput + tokens.output);
    return { factor: null, input: flat, cachedInput: flat, output: flat };
  }
  const scale = (price: bigint): bigint => ceilDivide(price * costPicoUsd, paid);
  return {
    factor: Number(ceilDivide(costPicoUsd * million, paid)) / Number(million),
    input: scale(today.input),
    cachedInput: scale(today.cachedInput),
    output: scale(today.output),
  };
}
