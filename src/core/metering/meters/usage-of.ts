import { type EngineCount, largest, noUsage, type Usage, type UsageSource } from './usage.ts';

/** Size of the generated text that passed through the gateway. */
export interface MadeText {
  /** Tokens that the text likely has. */
  readonly tokens: number;
  /** Least tokens of the text: an engine that counted fewer is mistaken. */
  readonly leastTokens: number;
}

export const noText: MadeText = { tokens: 0, leastTokens: 0 };

/** Everything known about what an engine used for an answer. */
export interface Seen {
  /** The engine's last count, the largest if it sent several; null if it sent none. */
  readonly last: EngineCount | null;
  /**
   * The counts that it sent before; null if it sent none. Without a last count this is their sum over all choices. With
   * a last count it is the largest of any choice: engines that count the whole request on each chunk show that by a
   * last count.
   */
  readonly running: EngineCount | null;
  readonly text: MadeText;
}

export const nothingSeen: Seen = { last: null, running: null, text: noText };

/** Known properties of the request itself. */
export interface CountTerms {
  /** True if the answer is generated token by token. */
  readonly generates: boolean;
  /** Estimated tokens of the prompt. */
  readonly promptTokens: number;
  /** Maximum output tokens of the request over all choices. */
  readonly outputTokensMax: number;
}

export interface KnownUsage {
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** Fault of the engine's last count: it lacks a figure, or is lower than what was seen. */
  readonly countFault: 'absent' | 'lower' | null;
}

/** One figure of a count, and its source. */
interface Figure {
  readonly tokens: number;
  readonly from: 'engine' | 'last_seen' | 'counted';
}

const none = { tokens: 0 };
const orders: readonly Figure['from'][] = ['engine', 'last_seen', 'counted'];

/**
 * Returns the usage of a request from everything known about it. Each figure is the largest of the engine's counts. If
 * the engine has none, or counted fewer tokens than the text has at least, the output is counted by the text; the
 * prompt of an answer is counted by its estimate. A request without an answer and without counts used nothing.
 * @param isComplete true if the answer is complete
 */
export function usageOf(seen: Seen, terms: CountTerms, isComplete: boolean): KnownUsage {
  const output = outputOf(seen, terms);
  const { tokens: outputTokens } = output ?? none;
  const isAnswered = outputTokens > 0 || (isComplete && !terms.generates);
  const input = inputOf(seen, terms, { outputTokens, isAnswered });
  const { tokens: inputTokens } = input ?? none;
  const { cachedTokens, cacheWriteTokens, reasoningTokens } = largest(seen.last, seen.running) ?? noUsage;
  const froms = [input?.from, output?.from];
  const from = orders.findLast((one) => froms.includes(one)) ?? 'none';
  const isNothing = from !== 'engine' && inputTokens + outputTokens === 0;
  const usage = {
    inputTokens,
    cachedTokens,
    cacheWriteTokens: Math.min(cacheWriteTokens, inputTokens - cachedTokens),
    outputTokens,
    reasoningTokens: Math.min(reasoningTokens, outputTokens),
  };
  return { usage, usageSource: isNothing ? 'none' : from, countFault: faultOf(seen, terms, isComplete, from) };
}

interface Answered {
  readonly outputTokens: number;
  readonly isAnswered: boolean;
}

function inputOf(seen: Seen, terms: CountTerms, { outputTokens, isAnswered }: Answered): Figure | null {
  const promptTokens = isAnswered ? terms.promptTokens : 0;
  const counted = withoutOutput(seen, terms.generates ? outputTokens : 0);
  const isKnown = counted !== null && counted.tokens > 0;
  return isKnown || promptTokens === 0 ? counted : { tokens: promptTokens, from: 'counted' };
}

/** Returns the engine's count of the prompt; a total beside which it counted no output includes the billed output. */
function withoutOutput({ last, running }: Seen, outputTokens: number): Figure | null {
  const counted = engineFigure(last?.inputTokens, running?.inputTokens);
  const isTotal = (counted?.from === 'engine' ? last : running)?.isTotal === true;
  return counted === null || !isTotal ? counted : { ...counted, tokens: Math.max(0, counted.tokens - outputTokens) };
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

/** Returns the fault of a last count that lacks a figure or was overruled, else null. */
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
