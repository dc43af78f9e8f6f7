import type { PriceVersion } from '#core/catalog/catalog.ts';
import type { OutcomeKind, UsageRecord } from './record.ts';
import type { SettledRequest } from './reports.ts';
import { costOf, noUsage } from './usage.ts';

/** How a request ended, as far as its bill goes. */
export interface Served extends Pick<UsageRecord, 'usage' | 'usageSource'> {
  readonly outcome: OutcomeKind;
  /** The answer is a stream, of which a client has what came before a failure. */
  readonly stream: boolean;
  /** The answer is made token by token. */
  readonly generates: boolean;
  /** Whoever asked gives nothing on but a complete answer: what was made of another one is written off. */
  readonly isWholeOrFree: boolean;
  readonly price: PriceVersion;
  /** The most that is charged, in pico-dollars: what is held for it. What the response cache answers holds nothing. */
  readonly heldPicoUsd: bigint;
}

export type Bill = Pick<UsageRecord, 'usage' | 'usageSource' | 'costPicoUsd' | 'writtenOffPicoUsd'>;

/**
 * What is billed of a request. A client that left, or a stream that was ended or failed midway, pays for what was made;
 * nothing is billed before the first token, nor for a JSON answer that could not be given. What goes beyond the hold
 * is written off, and so is what was made of an answer that is given whole or not at all.
 */
export function billOf(served: Served): Bill {
  const { usage, usageSource } = usageBilled(served);
  const fullPicoUsd = costOf(usage, served.price);
  const mostPicoUsd = served.isWholeOrFree && served.outcome !== 'completed' ? 0n : served.heldPicoUsd;
  const costPicoUsd = fullPicoUsd < mostPicoUsd ? fullPicoUsd : mostPicoUsd;
  return { usage, usageSource, costPicoUsd, writtenOffPicoUsd: fullPicoUsd - costPicoUsd };
}

function usageBilled(served: Served): Pick<UsageRecord, 'usage' | 'usageSource'> {
  const { outcome, usage, usageSource, stream, generates } = served;
  const isUndelivered = outcome === 'failed' && !stream;
  const isNothingMade = outcome !== 'completed' && generates && usage.outputTokens === 0;
  if (!isUndelivered && !isNothingMade) return served;
  return { usage: noUsage, usageSource: usageSource === 'engine' ? 'engine' : 'none' };
}

/** What a record takes of a wallet and of the limits on tokens. */
export function usedBy({ costPicoUsd, usage }: UsageRecord): SettledRequest {
  return { chargedPicoUsd: costPicoUsd, tokens: usage.inputTokens + usage.outputTokens };
}

/** The same of a request that is not billed. */
export const nothingUsed: SettledRequest = { chargedPicoUsd: 0n, tokens: 0 };
