import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  createMessagesMeter,
  createStreamMeter,
  meterJson,
  messagesUsage,
  openaiUsage,
  usageOf,
} from '#core/metering/metering.ts';
import { responsesUsage, shownUsage } from '#core/metering/meters/shown-usage.ts';
import { knownUsage } from './known-usage.ts';

interface Recording {
  readonly request: { readonly body: unknown };
  readonly reads: [number, string][];
}

const folder = new URL('../../engines/standin/recordings/', import.meta.url);

/** Complete answers of a real vLLM. */
const answers = ['forced-usage', 'usage-on-request', 'aborted-by-id', 'embedding'].flatMap((kind) =>
  readdirSync(new URL(`${kind}/`, folder))
    .filter((name) => /^(?:chat|completion|messages|embedding)-/.test(name))
    .map((name) => {
      const { request, reads } = JSON.parse(readFileSync(new URL(`${kind}/${name}`, folder), 'utf8')) as Recording;
      const text = Buffer.from(reads.map(([, read]) => read).join(''), 'utf8').toString('latin1');
      const { n = 1, prompt } = (request.body ?? {}) as { n?: number; prompt?: unknown };
      const prompts = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? prompt.length : 1;
      return { name: `${kind}/${name}`, isMessage: name.startsWith('messages'), choices: n, prompts, text };
    })
    .filter(({ text }) => text.includes('"usage":{')),
);
const streams = answers.filter(({ text }) => /\[DONE\]|message_stop/.test(text));
const jsons = answers.filter(({ text }) => text.startsWith('{'));

const bill = { inputTokens: 1000, cachedTokens: 900, cacheWriteTokens: 0, outputTokens: 5, reasoningTokens: 0 };

describe('the usage shown for a bill', () => {
  it('has the cached tokens that are billed, also when an earlier count had them', () => {
    const own = '{"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"prompt_tokens_details":null}';
    const shown = (usage: typeof bill): unknown => JSON.parse(shownUsage(own, { usage, costText: null }, openaiUsage));
    expect(shown(bill)).toMatchObject({ prompt_tokens: 1000, prompt_tokens_details: { cached_tokens: 900 } });
    expect(shownUsage(own, { usage: { ...bill, cachedTokens: 0 }, costText: null }, openaiUsage)).toBe(own);
  });

  it('has no cached tokens that are not billed', () => {
    const own =
      '{"input_tokens":1000,"output_tokens":5,"total_tokens":1005,"input_tokens_details":{"cached_tokens":7}}';
    const shown = shownUsage(own, { usage: { ...bill, cachedTokens: 0 }, costText: null }, responsesUsage);
    expect(JSON.parse(shown)).toMatchObject({ input_tokens: 1000, input_tokens_details: { cached_tokens: 0 } });
  });

  it('has at most as many reasoning tokens as output tokens', () => {
    const own =
      '{"prompt_tokens":1000,"completion_tokens":5,"total_tokens":1005,"completion_tokens_details":{"reasoning_tokens":9,"audio_tokens":1}}';
    const usage = { ...bill, cachedTokens: 0, reasoningTokens: 5 };
    expect(JSON.parse(shownUsage(own, { usage, costText: null }, openaiUsage))).toMatchObject({
      completion_tokens_details: { reasoning_tokens: 5, audio_tokens: 1 },
    });
  });

  it('leaves out what an earlier event of a message counted as written to the cache', () => {
    const usage = { ...bill, inputTokens: 510, cachedTokens: 0 };
    const shown = shownUsage('', { usage, costText: null }, messagesUsage, { cache_creation_input_tokens: 500 });
    expect(JSON.parse(shown)).toMatchObject({ input_tokens: 10, output_tokens: 5 });
  });

  it.each([null, '0.25'])('has no cost of an upstream, with the cost %s', (costText) => {
    const own = '{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"cost":9,"cost_details":{"upstream":9}}';
    for (const usage of [null, { ...bill, inputTokens: 1, cachedTokens: 0, outputTokens: 1 }]) {
      const shown = JSON.parse(shownUsage(own, { usage, costText }, openaiUsage)) as object;
      const tokens = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
      expect(shown).toEqual(costText === null ? tokens : { ...tokens, cost: 0.25 });
    }
  });
});

it('counts all text in the arguments of a tool, whatever their names', () => {
  const use = { type: 'tool_use', id: 't', name: 'f', input: { result: 'x'.repeat(4000) } };
  const metered = meterJson(JSON.stringify({ id: 'm', content: [use], stop_reason: 'tool_use' }), {
    rename: null,
    form: messagesUsage,
    made: 'content',
  });
  expect(metered.ok && metered.seen.text.tokens).toBeGreaterThan(1000);
});

describe('the usage of vLLM answers', () => {
  it('has recordings', () => {
    expect(streams.length).toBeGreaterThan(10);
    expect(jsons.length).toBeGreaterThan(20);
  });

  it.each(streams)('keeps its bytes at the end of $name', ({ isMessage, choices, prompts, text }) => {
    const options = { wantsUsage: true, wantsRunningUsage: true, rename: null, mayCountOnFinish: false };
    const create = isMessage ? createMessagesMeter : createStreamMeter;
    const meter = create({ ...options, choices, prompts });
    meter.expectAbort();
    const begin = meter.feed(text);
    const bill = { ...knownUsage(meter), costText: null };
    expect(`${begin}${meter.lastFrames(bill)}${isMessage ? '' : 'data: [DONE]\n\n'}`).toBe(text);
  });

  it.each(jsons)('keeps its bytes in $name', ({ isMessage, text }) => {
    const metered = meterJson(text, { rename: null, form: isMessage ? messagesUsage : openaiUsage });
    if (!metered.ok) throw new Error('the answer is invalid');
    const terms = { generates: false, promptTokens: 0, outputTokensMax: 1 };
    const { usage } = usageOf(metered.seen, terms, true);
    expect(metered.write({ usage, costText: null })).toBe(text);
  });
});
