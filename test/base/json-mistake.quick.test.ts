import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMistake } from '#base/json/mistake.ts';

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe('the first error in a JSON text', () => {
  it.each([
    ['{"a": "x\ny"}', 8, 'a line break inside a string must be written as \\n'],
    ['{"a": "\tx"}', 7, 'a tab inside a string must be written as \\t'],
    ['{"a": "\u0001"}', 7, 'a control character inside a string must be written as \\u0001'],
    ['{"a": [1, 2,]}', 12, 'a value is expected'],
    ['{"a": {"b": 1,}}', 14, 'a field name in quotes is expected'],
    ['{"a": {"b" 1}}', 11, 'a colon is expected'],
    ['{"a": [1 2]}', 9, 'a comma or "]" is expected'],
    ['{"a": NaN}', 6, 'a value is expected'],
    ['{"a": "C:\\x"}', 9, 'invalid escape sequence: write a backslash as \\\\'],
    ['{"a": "x', 6, 'this string does not end'],
    ['{"a": ', 6, 'it ends too early'],
    ['{} {}', 3, 'unexpected content after the value'],
  ])('in %j is at %i', (text, offset, reason) => {
    expect(findMistake(text)).toEqual({ offset, reason });
  });

  it('is found in exactly the texts that JSON.parse rejects', () => {
    const cut = fc.tuple(fc.json({ maxDepth: 4 }), fc.nat(), fc.nat(3), fc.string({ maxLength: 3 }));
    fc.assert(
      fc.property(cut, ([json, at, length, more]) => {
        const place = at % (json.length + 1);
        const text = json.slice(0, place) + more + json.slice(place + length);
        expect(findMistake(text) === null, text).toBe(parses(text));
      }),
      { numRuns: 5000 },
    );
  });
});
