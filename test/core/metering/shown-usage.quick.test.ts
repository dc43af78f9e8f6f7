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
