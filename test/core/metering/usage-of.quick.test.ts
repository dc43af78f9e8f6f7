import { describe, expect, it } from 'vitest';
import { type CountTerms, noText, type Seen, usageOf } from '#core/metering/metering.ts';

type Count = Exclude<Seen['last'], null>;

const count = (inputTokens: number | null, outputTokens: number | null, cachedTokens = 0): Count => ({
  inputTokens,
  cachedTokens,
  cacheWriteTokens: 0,
  outputTokens,
  reasoningTokens: 0,
});
const text = (tokens: number, leastTokens = Math.ceil(tokens / 4)) => ({ tokens, leastTokens });

const terms: CountTerms = { generates: true, promptTokens: 30, outputTokensMax: 100 };
const complete = true;
const left = false;

/** Input, output, where they are from, and what is wrong with the engine's last count. */
type Row = readonly [string, Partial<Seen>, boolean, readonly [number, number, string, string | null]];

const rows: readonly Row[] = [
  ['a last count', { last: count(10, 5) }, complete, [10, 5, 'engine', null]],
  ['a last count after running ones', { last: count(10, 5), running: count(10, 4) }, complete, [10, 5, 'engine', null]],
  ['a last count beside text', { last: count(10, 5), text: text(6) }, complete, [10, 5, 'engine', null]],
  ['no last count, but running ones', { running: count(10, 4) }, left, [10, 4, 'last_seen', null]],
  ['text only', { text: text(7) }, left, [30, 7, 'counted', null]],
  ['only text of a complete answer', { text: text(7) }, complete, [30, 7, 'counted', 'absent']],
  [
    'text, and a prompt that was counted at the start',
    { running: count(12, null), text: text(7) },
    left,
    [12, 7, 'counted', null],
  ],
  ['text beyond what was asked for', { text: text(7000) }, complete, [30, 100, 'counted', 'absent']],
  ['nothing', {}, left, [0, 0, 'none', null]],
  ['nothing of a complete answer', {}, complete, [0, 0, 'none', null]],
  ['a prompt that was counted before it was left', { running: count(10, 0) }, left, [10, 0, 'last_seen', null]],
  ['a last count of zeros', { last: count(0, 0), running: count(10, 4) }, complete, [10, 4, 'last_seen', 'lower']],
  ['a last count of zeros, and text only', { last: count(0, 0), text: text(7) }, complete, [30, 7, 'counted', 'lower']],
  [
    'a last count that goes back',
    { last: count(10, 2), running: count(10, 4) },
    complete,
    [10, 4, 'last_seen', 'lower'],
  ],
  [
    'a last count that no text can have',
    { last: count(10, 1), text: text(20) },
    complete,
    [10, 20, 'counted', 'lower'],
  ],
  ['a last count without the prompt', { last: count(null, 5) }, complete, [30, 5, 'counted', 'absent']],
  ['a last count without the output', { last: count(10, null), text: text(7) }, complete, [10, 7, 'counted', 'absent']],
  [
    'a last count of nothing',
    { last: count(null, null), running: count(9, 4) },
    complete,
    [9, 4, 'last_seen', 'absent'],
  ],
  [
    'a total beside which no output was counted',
    { last: { ...count(100, null), isTotal: true }, text: text(20) },
    complete,
    [80, 20, 'counted', 'absent'],
  ],
  ['a last count of zeros before the first token', { last: count(0, 0) }, left, [0, 0, 'engine', null]],
];

describe('the usage of a request', () => {
  it.each(rows)('follows from %s', (_, seen, isComplete, [inputTokens, outputTokens, usageSource, countFault]) => {
    const known = usageOf({ last: null, running: null, text: noText, ...seen }, terms, isComplete);
    expect(known).toMatchObject({ usage: { inputTokens, outputTokens }, usageSource, countFault });
  });

  it.each<[string, Seen['last'], boolean, readonly [number, string, string | null]]>([
    ['a count', count(10, 0), complete, [10, 'engine', null]],
    ['a count of the prompt only', count(10, null), complete, [10, 'engine', null]],
    ['none', null, complete, [30, 'counted', 'absent']],
    ['none of one that was left', null, left, [0, 'none', null]],
    ['a total', { ...count(10, null), isTotal: true }, complete, [10, 'engine', null]],
    ['zeros', count(0, 0), complete, [30, 'counted', 'lower']],
    ['no figure', count(null, null), complete, [30, 'counted', 'absent']],
  ])(
    'of an endpoint without output tokens follows from the prompt: %s',
    (_, last, isComplete, [inputTokens, usageSource, countFault]) => {
      const known = usageOf({ last, running: null, text: noText }, { ...terms, generates: false }, isComplete);
      expect(known).toMatchObject({ usage: { inputTokens, outputTokens: 0 }, usageSource, countFault });
    },
  );

  it('uses the cached part that one of two equal counts has', () => {
    const seen = { last: count(10, 5), running: count(10, 4, 8), text: noText };
    const known = usageOf(seen, terms, complete);
    expect(known).toMatchObject({ usage: { inputTokens: 10, cachedTokens: 8 }, usageSource: 'engine' });
  });

  it('uses the cached part of the count that its prompt is from', () => {
    const seen = { last: count(10, 5, 3), running: count(12, 4, 8), text: noText };
    expect(usageOf(seen, terms, complete).usage).toMatchObject({ inputTokens: 12, cachedTokens: 8, outputTokens: 5 });
  });
});
