import { type EngineCount, largest, noUsage, type Usage, type UsageSource } from './usage.ts';

/** What passed through the gateway of the text that an engine made. */
export interface MadeText {
  /** Tokens that the text likely has. */
  readonly tokens: number;
  /** Tokens that the text has at least: an engine that counted fewer is mistaken. */
  readonly leastTokens: number;
}

export const noText: MadeText = { tokens: 0, leastTokens: 0 };

/** All that is known of what an engine used for an answer. */
export interface Seen {
  /** The engine's last count, the largest where it sent several; null where it sent none. */
  readonly last: EngineCount | null;
  /**
   * The counts that it sent before; null where it sent none. Without a last count this is their sum over all choices,
   * beside one the largest of any choice: engines that count the whole request on each chunk say so by their last count.
   */
  readonly running: EngineCount | null;
  readonly text: MadeText;
}

export const nothingSeen: Seen = { last: null, running: null, text: noText };

/** What is known of the request itself. */
export interface CountTerms {
  /** The answer is made token by token. */
  readonly generates: boolean;
  /** The prompt's estimate. */
  readonly promptTokens: number;
  /** Output tokens over all choices that the request may have. */
  readonly outputTokensMax: number;
}

export interface KnownUsage {
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** What is wrong with the engine's last count: it lacks a figure, or took back what was seen. */
  readonly countFault: 'absent' | 'lower' | null;
}

/** One figure of a count, and where it is from. */
interface Figure {
  readonly tokens: number;
  readonly from: 'engine' | 'last_seen' | 'counted';
}

const none = { tokens: 0 };
const orders: readonly Figure['from'][] = ['engine', 'last_seen', 'counted'];

/**
 * Decides what a request used, from all that is known of it. Each figure is the largest of the engine's counts. Where the
 * engine has none, or counted fewer tokens than the text that passed has at least, the text counts for the output; the
 * prompt of an answer has its estimate. What was not answered, and of which nothing was counted, used nothing.
 * @param isComplete the answer is
 */
export function usageOf(seen: Seen, terms: CountTerms, isComplete: boolean): KnownUsage {
  const output = outputOf(seen, terms);
  const { tokens: outputTokens } = output ?? none;
  const isAnswered = outputTokens > 0 || (isComplete && !terms.generates);
  const input = inputOf(seen, isAnswered ? terms.promptTokens : 0);
  const { tokens: inputTokens } = input ?? none;
  const { cachedTokens, reasoningTokens } = largest(seen.last, seen.running) ?? noUsage;
  const froms = [input?.from, output?.from];
  const from = orders.findLast((one) => froms.includes(one)) ?? 'none';
  const isNothing = from !== 'engine' && inputTokens + outputTokens === 0;
  const usage = { inputTokens, cachedTokens, outputTokens, reasoningTokens: Math.min(reasoningTokens, outputTokens) };
  return { usage, usageSource: isNothing ? 'none' : from, countFault: faultOf(seen, terms, isComplete, from) };
}

function inputOf({ last, running }: Seen, promptTokens: number): Figure | null {
  const counted = engineFigure(last?.inputTokens, running?.inputTokens);
  const isKnown = counted !== null && counted.tokens > 0;
  return isKnown || promptTokens === 0 ? counted : { tokens: promptTokens, from: 'counted' };
}

function engineFigure(last: number | null = null, running: number | null = null): Figure | null {
  if (last !== null && last >= (running ?? 0)) return { tokens: last, from: 'engine' };
  return running === null ? null : { tokens: running, from: 'last_seen' };
}

function outputOf({ last, running, text }: Seen, { generates, outputTokensMax }: CountTerms): Figure | null {
  const counted = engineFigure(last?.outputTokens, running?.outputTokens);
  if (!generates || text.tokens === 0) return counted;
  if (counted !== null && counted.tokens >= text.leastTokens) return counted;
  return { tokens: Math.min(text.tokens, outputTokensMax), from: 'counted' };
}

/** A last count that lacks a figure, or one that was overruled. */
function faultOf(
  { last }: Seen,
  { generates }: CountTerms,
  isComplete: boolean,
  from: UsageSource,
): KnownUsage['countFault'] {
  if (from === 'none') return null;
  if (last === null) return isComplete && from === 'counted' ? 'absent' : null;
  if (last.inputTokens === null || (generates && last.outputTokens === null)) return 'absent';
  return from === 'engine' ? null : 'lower';
}
