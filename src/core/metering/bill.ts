import type { PriceVersion } from '#core/catalog/catalog.ts';
import { costOf, noUsage, type Usage } from '#core/metering/meters/meters.ts';
import type { OutcomeKind, UsageRecord } from '#core/metering/records/records.ts';
import type { SettledRequest } from './reports.ts';

/** The parts of a request's end that decide its bill. */
export interface Served extends Pick<UsageRecord, 'usage' | 'usageSource'> {
  readonly outcome: OutcomeKind;
  /** True if the client has a part of the answer: frames of a stream. */
  readonly isPartSent: boolean;
  /** True if the answer is generated token by token. */
  readonly generates: boolean;
  /**
   * True if the request itself was rejected, or ended for lack of money or a valid key; neither engine nor gateway
   * failed.
   */
  readonly isAtFault: boolean;
  /** True if the caller passes on only a complete answer: an incomplete one is written off. */
  readonly isWholeOrFree: boolean;
  readonly price: PriceVersion;
  /** Most that is charged, in pico-dollars: see `RequestHold`. An answer from the response cache holds nothing. */
  readonly chargeMaxPicoUsd: bigint;
  /** Maximum token counts that are believed; null if nothing is held. */
  readonly ceiling: TokenCeiling | null;
}

/** Maximum token counts. Each bounds its own count: a short prompt does not pay for output beyond the limit. */
export interface TokenCeiling {
  /** Tokens of all prompts. */
  readonly promptTokens: bigint;
  /** Output tokens over all choices. */
  readonly outputTokens: bigint;
}

export interface Bill extends Pick<UsageRecord, 'usage' | 'usageSource' | 'costPicoUsd' | 'writtenOffPicoUsd'> {
  /** True if the engine counted more than is believed. */
  readonly isCut: boolean;
  /** Amount that is charged if the hold pays for it, in pico-dollars. */
  readonly duePicoUsd: bigint;
}

/**
 * Returns the bill of a request. If a client left, or a stream was ended or failed midway, the output so far is paid,
 * and so is a request that was rejected after parts of it were computed. Output is in the record and in limits, but
 * written off, if an engine failed or a gateway ended the answer before the client had any of it, or if the caller
 * passes on only complete answers and this one is incomplete. An amount beyond the hold is written off too. Engine
 * counts beyond the ceiling are ignored everywhere: bill, record and limits have one figure. Before the first token a
 * request costs nothing, unless it was ended for a reason of its own: otherwise a caller with too little money could
 * have prompts computed for free.
 */
export function billOf(served: Served): Bill {
  const { usage: counted, usageSource } = usageCounted(served);
  const usage = believed(counted, served.ceiling);
  const isCut = usage.inputTokens < counted.inputTokens || usage.outputTokens < counted.outputTokens;
  const fullPicoUsd = costOf(usage, served.price);
  const duePicoUsd = isWrittenOff(served) ? 0n : fullPicoUsd;
  const costPicoUsd = duePicoUsd < served.chargeMaxPicoUsd ? duePicoUsd : served.chargeMaxPicoUsd;
  return { usage, usageSource, isCut, duePicoUsd, costPicoUsd, writtenOffPicoUsd: fullPicoUsd - costPicoUsd };
}

function isWrittenOff({ outcome, isPartSent, isAtFault, isWholeOrFree }: Served): boolean {
  if (isWholeOrFree) return outcome !== 'completed';
  return (outcome === 'failed' || outcome === 'ended') && !isPartSent && !isAtFault;
}

function usageCounted(served: Served): Pick<UsageRecord, 'usage' | 'usageSource'> {
  const { outcome, usage, usageSource, generates, isAtFault } = served;
  const isCounted = outcome === 'completed' || (outcome === 'ended' && isAtFault);
  if (isCounted || !generates || usage.outputTokens > 0) return served;
  return { usage: noUsage, usageSource: usageSource === 'engine' ? 'engine' : 'none' };
}

function believed(usage: Usage, ceiling: TokenCeiling | null): Usage {
  if (ceiling === null) return usage;
  const inputTokens = Math.min(usage.inputTokens, Number(ceiling.promptTokens));
  const outputTokens = Math.min(usage.outputTokens, Number(ceiling.outputTokens));
  const cachedTokens = Math.min(usage.cachedTokens, inputTokens);
  return {
    inputTokens,
    cachedTokens,
    cacheWriteTokens: Math.min(usage.cacheWriteTokens, inputTokens - cachedTokens),
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens, outputTokens),
  };
}

/** Returns the use that a record takes from a wallet and from token limits. */
export function usedBy({ costPicoUsd, usage }: UsageRecord): SettledRequest {
  return { chargedPicoUsd: costPicoUsd, tokens: usage.inputTokens + usage.outputTokens };
}

/** Use of a request that is not billed. */
export const nothingUsed: SettledRequest = { chargedPicoUsd: 0n, tokens: 0 };
