import { describe, expect, it } from 'vitest';
import { createMessagesMeter, createResponsesMeter } from '#core/metering/metering.ts';
import { knownUsage } from './known-usage.ts';

/** Engines that guess tokens ahead, or gather them, bring many in one event; their number comes only with the end. */

const options = {
  wantsUsage: true,
  wantsRunningUsage: false,
  rename: null,
  choices: 1,
  prompts: 1,
  mayCountOnFinish: false,
};
const frame = (event: object): string => `event: x\ndata: ${JSON.stringify(event)}\n\n`;

const forms = [
  [
    'a response',
    () => createResponsesMeter(options),
    (delta: string) => ({ content_index: 0, delta, item_id: 'msg_1', type: 'response.output_text.delta' }),
  ],
  [
    'a response whose events begin with their type',
    () => createResponsesMeter(options),
    (delta: string) => ({ type: 'response.output_text.delta', content_index: 0, delta }),
  ],
  [
    'a message',
    () => createMessagesMeter(options),
    (text: string) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
  ],
  [
    'a message of vLLM',
    () => createMessagesMeter(options),
    (text: string) => ({ type: 'content_block_delta', delta: { type: 'text_delta', text }, index: 0 }),
  ],
  [
    'reasoning of vLLM',
    () => createMessagesMeter(options),
    (thinking: string) => ({ type: 'content_block_delta', delta: { type: 'thinking_delta', thinking }, index: 0 }),
  ],
  [
    'a call of a tool of vLLM',
    () => createMessagesMeter(options),
    (json: string) => ({
      type: 'content_block_delta',
      delta: { type: 'input_json_delta', partial_json: json },
      index: 0,
    }),
  ],
  [
    'a message whose events end with their type',
    () => createMessagesMeter(options),
    (text: string) => ({ delta: { type: 'text_delta', text }, index: 0, type: 'content_block_delta' }),
  ],
] as const;

describe.each(forms)('%s', (_, create, event) => {
  it('with one token per event counts as many tokens as events', () => {
    const meter = create();
    for (const token of ['The', ' answer', ' is', ' "', 'f', 'orty', '-two', '\\', '"', '.', '\n', '']) {
      meter.feed(frame(event(token)));
    }
    expect([meter.outputTokens, meter.likelyTokens]).toEqual([11, 11]);
  });

  it.each([
    ['long words', ['Furthermore', ',', ' international', ' organizations', ' acknowledged', ' responsibilities', '.']],
    ['blanks', ['{', '\n                            ', '"', 'name', '":', ' []']],
    ['quotes', ['{"', 'city', '":"', 'Paris', '","', 'street', '":"\\"', 'x', '\\""}']],
    ['Chinese', ['国际', '组织', '承认', '了', '合作', '的', '必要性', '。']],
  ])('with one token per event holds for no more tokens than events: %s', (_words, tokens) => {
    const meter = create();
    for (let turn = 0; turn < 50; turn += 1) for (const token of tokens) meter.feed(frame(event(token)));
    expect([meter.outputTokens, meter.likelyTokens]).toEqual([50 * tokens.length, 50 * tokens.length]);
  });

  it('with escaped letters holds for no more tokens', () => {
    const meter = create();
    const escaped = (text: string): string =>
      text.replaceAll(/[^\n -~]/g, (c) => `\\u0${c.charCodeAt(0).toString(16)}`);
    for (let turn = 0; turn < 50; turn += 1) {
      for (const token of [' сотрудничества', ' в', ' области', ' образования', '.']) {
        meter.feed(escaped(frame(event(token))));
      }
    }
    expect([meter.outputTokens, meter.likelyTokens]).toEqual([250, 250]);
  });

  it('with many tokens per event holds by its text, and is billed by the text without a count', () => {
    const meter = create();
    for (let read = 0; read < 10; read += 1) meter.feed(frame(event(' "word"'.repeat(40))));
    const outputTokens = meter.likelyTokens;
    expect(knownUsage(meter)).toMatchObject({ source: 'counted', usage: { outputTokens } });
    expect(meter.likelyTokens).toBeGreaterThan(150);
    // 40 words of three tokens in each.
    expect(meter.likelyTokens).toBeLessThan(1200);
  });
});
