import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PrefixIndex } from '#core/routing/prefix-index.ts';
import { hashPrompt } from '#core/routing/prompt-blocks.ts';

const blockBytes = 512;

function chainOf(text: string, context: readonly string[] = [], scope = ''): Int32Array {
  let body = '';
  const spans = [...context, text].map((part) => {
    const start = body.length;
    body += part;
    return { start, end: body.length };
  });
  const prompt = spans.pop() ?? { start: 0, end: 0 };
  return hashPrompt({ text: body, scope, context: spans, prompt });
}

/** A text of so many blocks that says at every place where it is. */
const filler = (name: string, blocks: number): string =>
  Array.from({ length: blocks }, (_, at) => `${name} ${at} `.padEnd(blockBytes, name)).join('');

function common(one: Int32Array, other: Int32Array): number {
  const at = one.findIndex((block, index) => block !== other[index]);
  return at === -1 ? one.length : at;
}

describe('the block hashes of a prompt', () => {
  it('are empty for a prompt shorter than a block, or an empty one', () => {
    expect(chainOf('x'.repeat(blockBytes - 1))).toHaveLength(0);
    expect(chainOf('')).toHaveLength(0);
  });

  it('are equal exactly as far as the prompts are', () => {
    const conversation = filler('turn', 6);
    const chain = chainOf(conversation);
    expect(chain).toHaveLength(6);
    expect(common(chain, chainOf(`${conversation}${filler('next', 3)}`))).toBe(6);
    const changed = `${conversation.slice(0, 2 * blockBytes)}!${conversation.slice(2 * blockBytes + 1)}`;
    expect(common(chain, chainOf(changed))).toBe(2);
    expect([...chainOf(changed)].slice(2).some((block) => chain.includes(block))).toBe(false);
  });

  it('differ for the same text after different text', () => {
    const repeated = chainOf(filler('same', 1).repeat(8));
    expect(new Set(repeated).size).toBe(8);
  });

  it('differ with other tools, salt or scope, and share the blocks of equal tools', () => {
    const messages = filler('messages', 4);
    expect(common(chainOf(messages), chainOf(messages, ['"cache_salt":"a"']))).toBe(0);
    expect(common(chainOf(messages, ['"cache_salt":"b"']), chainOf(messages, ['"cache_salt":"a"']))).toBe(0);
    expect(common(chainOf(messages, [], 'one'), chainOf(messages, [], 'other'))).toBe(0);
    expect(chainOf(messages, [], 'one')).toEqual(chainOf(messages, [], 'one'));
    const tools = filler('tools', 3) + 'end';
    const withTools = chainOf(messages, [tools]);
    expect(withTools).toHaveLength(8);
    expect(common(withTools, chainOf(filler('others', 4), [tools]))).toBe(4);
    expect(chainOf(messages, [tools])).toEqual(withTools);
  });

  it('end after 64 KB, including tools', () => {
    expect(chainOf('x'.repeat(1_000_000))).toHaveLength(128);
    expect(chainOf(filler('messages', 4), ['t'.repeat(200_000), '"cache_salt":"a"'])).toHaveLength(128);
    expect(chainOf(filler('messages', 200), [filler('tools', 100)])).toHaveLength(128);
  });

  it('do not depend on earlier hashes', () => {
    const chain = chainOf(filler('a', 3), ['"cache_salt":"a"']);
    chainOf('z'.repeat(100_000));
    expect(chainOf(filler('a', 3), ['"cache_salt":"a"'])).toEqual(chain);
  });
});

describe('the prefix index', () => {
  const chains = { long: chainOf(filler('long', 8)), other: chainOf(filler('other', 4)) };

  it('matches nothing for an unknown or forgotten replica, or an empty prompt', () => {
    const index = new PrefixIndex(100);
    expect(index.match('a', chains.long)).toBe(0);
    index.record('a', chains.long);
    expect(index.match('b', chains.long)).toBe(0);
    expect(index.match('a', new Int32Array(0))).toBe(0);
    index.forget('a');
    expect(index.match('a', chains.long)).toBe(0);
  });

  it('matches as many blocks as the replica has read', () => {
    const index = new PrefixIndex(100);
    for (let read = 0; read <= chains.long.length; read += 1) {
      index.record('a', chains.long.slice(0, read));
      expect(index.match('a', chains.long)).toBe(read);
    }
  });

  it('evicts the ends of the least recently read prompts first', () => {
    const index = new PrefixIndex(10);
    index.record('a', chains.long);
    index.record('a', chains.other);
    expect(index.match('a', chains.other)).toBe(4);
    expect(index.match('a', chains.long)).toBe(6);
    index.record('a', chains.long);
    expect(index.match('a', chains.long)).toBe(8);
    expect(index.match('a', chains.other)).toBe(2);
  });

  it('finds the same match by bisection as block by block', () => {
    const prompts = fc.array(fc.tuple(fc.nat(3), fc.integer({ min: 0, max: 12 })), { maxLength: 30 });
    fc.assert(
      fc.property(prompts, fc.integer({ min: 1, max: 20 }), (requests, blocksMax) => {
        const index = new PrefixIndex(blocksMax);
        const plain = new Map<number, number>();
        let clock = 0;
        for (const [family, length] of requests) {
          // Two families share their first three blocks.
          const chain = Int32Array.from({ length }, (_, at) => (at < 3 ? family % 2 : family + 10) * 1000 + at);
          index.record('a', chain);
          for (const block of chain.toReversed()) plain.set(block, (clock += 1));
          const kept = [...plain].toSorted((one, other) => other[1] - one[1]).slice(0, blocksMax);
          plain.clear();
          for (const [block, usedAt] of kept) plain.set(block, usedAt);
          const missing = chain.findIndex((block) => !plain.has(block));
          expect(index.match('a', chain)).toBe(missing === -1 ? chain.length : missing);
        }
      }),
    );
  });
});
