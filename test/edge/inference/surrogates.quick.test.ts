import fc from 'fast-check';
import { expect, it } from 'vitest';
import { pathAt } from '#base/json/path.ts';
import { findHalf } from '#edge/inference/surrogates.ts';

const piece = fc.constantFrom('\\ud83d', '\\uDE00', '\\ud83d\\ude00', '\\\\', '\\n', 'ud83d', 'x', '\\"', '\\u0041');

it('finds half of a surrogate pair in exactly the JSON texts that have one', () => {
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
      const json = `"${pieces.join('')}"`;
      const value = JSON.parse(json) as string;
      expect(findHalf(json) === -1, json).toBe(value.isWellFormed());
    }),
    { numRuns: 2000 },
  );
});

it('returns the path of the value at an offset', () => {
  const text = '{"model": "x", "messages": [{"role": "user"}, {"content": [{"text": "HERE"}]}], "HERE2": 1}';
  expect(pathAt(text, text.indexOf('HERE'))).toBe('messages[1].content[0].text');
  expect(pathAt(text, text.indexOf('HERE2'))).toBe('');
  expect(pathAt(text, text.indexOf('"user"'))).toBe('messages[0].role');
});
