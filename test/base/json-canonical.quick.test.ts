import fc from 'fast-check';
import { expect, it } from 'vitest';
import { canonicalJson } from '#base/json/canonical.ts';

const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

it('returns JSON of the same meaning, and the same text for every notation', () => {
  const shuffled = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(shuffled);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .toReversed()
        .map(([key, member]) => [key, shuffled(member)]),
    );
  };
  const escaped = (text: string): string =>
    text.replaceAll(/[a-z](?=[^"\\]*")/g, (letter) => {
      return /[bfnrtu]/.test(letter) ? letter : `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`;
    });
  fc.assert(
    fc.property(
      fc.jsonValue({ maxDepth: 5, stringUnit: 'binary' }),
      fc.constantFrom(undefined, 1, '\t'),
      (value, gap) => {
        const text = canonicalJson(latin1(JSON.stringify(value))) ?? '';
        expect(JSON.parse(Buffer.from(text, 'latin1').toString('utf8'))).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(text)).toBe(text);
        expect(canonicalJson(` ${latin1(JSON.stringify(shuffled(value), null, gap))}\n`)).toBe(text);
      },
    ),
  );
  expect(canonicalJson(escaped('{"alpha":["sigma",{"k":1}]}'))).toBe('{"alpha":["sigma",{"k":1}]}');
});

it('writes numbers in one way, and keeps the digits of long integers', () => {
  for (const [text, expected] of [
    ['[1.0,2e0,-0,-0.0,0.10,1E2]', '[1,2,0,0,0.1,100]'],
    ['[9007199254740993, -12345678901234567890123]', '[9007199254740993,-12345678901234567890123]'],
    ['1e999', '1e999'],
    [`[${'7,'.repeat(2500)}1.50]`, `[${'7,'.repeat(2500)}1.5]`],
  ] as const) {
    expect(canonicalJson(text)).toBe(expected);
  }
});

it('returns null for text that is not JSON', () => {
  const deep = '['.repeat(5000);
  for (const text of ['', '{', '[1,]', '[,1]', '{"a"}', '{"a":1,}', '[1 2]', '{"a":1}x', '"\\x"', 'tru', deep]) {
    expect(canonicalJson(text), text).toBeNull();
  }
});
