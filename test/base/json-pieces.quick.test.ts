import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ObjectPieces, type PieceMember } from '#base/json/pieces.ts';
import { scanDocument } from '#base/json/scan.ts';

const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const keys = ['usage', 'model', 'error'];

/** Feeds a text in pieces of the lengths given, the last of them for all that follow. */
function walk(text: string, lengths: readonly number[]): ReadonlyMap<string, PieceMember> | null {
  const pieces = new ObjectPieces(new Set(keys), Infinity);
  let at = 0;
  for (let count = 0; at < text.length; count += 1) {
    const length = lengths[Math.min(count, lengths.length - 1)] ?? 1;
    pieces.feed(text.slice(at, at + length));
    at += length;
  }
  return pieces.end();
}

/** The result of the scanner of whole texts. */
function scan(text: string): ReadonlyMap<string, PieceMember> | null {
  const scanned = scanDocument(text);
  if (!scanned.ok) return null;
  const wanted = scanned.members.filter(({ key }) => keys.includes(key));
  return new Map(
    wanted.map(({ key, valueStart, valueEnd }) => {
      return [key, { valueStart, valueEnd, text: text.slice(valueStart, valueEnd) }];
    }),
  );
}

const anyKey = fc.oneof(fc.constantFrom(...keys), fc.string({ unit: 'binary', maxLength: 6 }));
const anyObject = fc.dictionary(anyKey, fc.jsonValue({ maxDepth: 4, stringUnit: 'binary' }), { maxKeys: 6 });
const anyLengths = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 8 });
const anySpacing = fc.constantFrom(undefined, 1, '\t');

describe('the parser for a JSON object, read in pieces', () => {
  it('finds the same as the scanner of whole texts, for any division of the text', () => {
    fc.assert(
      fc.property(anyObject, anySpacing, anyLengths, (value, spacing, lengths) => {
        const text = latin1(JSON.stringify(value, null, spacing));
        expect(walk(text, lengths)).toEqual(scan(text));
      }),
      { numRuns: 3000 },
    );
  });

  it('agrees with the scanner on damaged texts', () => {
    const anyDamage = fc.constantFrom('"', '{', '}', '[', ']', ',', ':', '\\', 'e', '1', ' ');
    fc.assert(
      fc.property(anyObject, fc.nat(), anyDamage, anyLengths, (value, place, damage, lengths) => {
        const whole = latin1(JSON.stringify(value));
        const at = place % (whole.length + 1);
        const text = whole.slice(0, at) + damage + whole.slice(at);
        const found = scan(text);
        // Only the scanner of whole texts finds a key that is no string; no wanted key is one.
        fc.pre(found !== null);
        expect(walk(text, lengths)).toEqual(found);
      }),
      { numRuns: 500, maxSkipsPerRun: 1000 },
    );
  });

  it('rejects everything except one object', () => {
    for (const text of [
      '',
      ' ',
      '[]',
      '{',
      '{"a"}',
      '{"a":}',
      '{"a":1,}',
      '{"a":1}x',
      '{"a":[}',
      '{"a":{]}',
      '{"a":01}',
    ]) {
      expect(walk(text, [1]), text).toBeNull();
      expect(scan(text), text).toBeNull();
    }
  });

  it('recognizes a wanted key written with escapes, and the last of several', () => {
    const text = '{"us\\u0061ge":{"a":"}\\\\\\""},"model":"a\\\\","usage":null,"model":"b"}';
    for (const length of [1, 2, 3, 100]) expect(walk(text, [length])).toEqual(scan(text));
  });
});
