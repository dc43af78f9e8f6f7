import type { PriceVersion } from '#core/catalog/catalog.ts';
import type { OutcomeKind, UsageRecord } from './record.ts';
import type { SettledRequest } from './reports.ts';
import { costOf, noUsage, type Usage } from './usage.ts';

/** How a request ended, as far as its bill goes. */
export interface Served extends Pick<UsageRecord, 'usage' | 'usageSource'> {
  readonly outcome: OutcomeKind;
  /** The client has a part of the answer: frames of a stream. */
  readonly isPartSent: boolean;
  /** The answer is made token by token. */
  readonly generates: boolean;
  /** The request itself was refused, or ended for want of money or a valid key; neither engine nor gateway failed. */
  readonly isAtFault: boolean;
  /** Whoever asked gives nothing on but a complete answer: what was made of another one is written off. */
  readonly isWholeOrFree: boolean;
  readonly price: PriceVersion;
  /** The most that is charged, in pico-dollars: see `RequestHold`. What the response cache answers holds nothing. */
  readonly chargeMaxPicoUsd: bigint;
  /** Tokens beyond which no count is believed; null where nothing is held. */
  readonly ceiling: TokenCeiling | null;
}

/** Each bounds its own figure: an output beyond what was asked for is not paid by a prompt that is short. */
export interface TokenCeiling {
  /** Of all prompts. */
  readonly promptTokens: bigint;
  /** Over all choices. */
  readonly outputTokens: bigint;
}

export interface Bill extends Pick<UsageRecord, 'usage' | 'usageSource' | 'costPicoUsd' | 'writtenOffPicoUsd'> {
  /** The engine counted more than is believed. */
  readonly isCut: boolean;
  /** What is charged where the hold pays for it, in pico-dollars. */
  readonly duePicoUsd: bigint;
}

/**
 * What is billed of a request. A client that left, or a stream that was ended or failed midway, pays for what was made, and
 * so does a request that was refused after parts of it were computed. What was made of an answer that an engine failed at or
 * a gateway ended before the client had any of it, or that is given whole or not at all, is on the record and in limits,
 * and written off; so is what goes beyond the hold. What an engine counts beyond the ceiling is nowhere: bill, record and limits have one figure. Before the first
 * token a request costs nothing, unless it was ended for a reason of its own: whoever has too little money could have
 * prompts computed for nothing.
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
  return {
    inputTokens,
    cachedTokens: Math.min(usage.cachedTokens, inputTokens),
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens, outputTokens),
  };
}

/** What a record takes of a wallet and of the limits on tokens. */
export function usedBy({ costPicoUsd, usage }: UsageRecord): SettledRequest {
  return { chargedPicoUsd: costPicoUsd, tokens: usage.inputTokens + usage.outputTokens };
}

/** The same of a request that is not billed. */
export const nothingUsed: SettledRequest = { chargedPicoUsd: 0n, tokens: 0 };
