import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { memberCut, scanDocument, spliceText } from '#base/json/scan.ts';

const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const utf8 = (text: string): string => Buffer.from(text, 'latin1').toString('utf8');

const anyObject = fc.dictionary(
  fc.string({ unit: 'binary', maxLength: 8 }),
  fc.jsonValue({ maxDepth: 4, stringUnit: 'binary' }),
  {
    maxKeys: 8,
  },
);
const anySpacing = fc.constantFrom(undefined, 1, 2, '\t');

/** Writes some letters of a JSON text's strings as \u escapes, which changes its bytes and not its meaning. */
function escapeSome(text: string, every: number): string {
  let seen = 0;
  const escapeLetter = (token: string): string => {
    if (token.length > 1) return token;
    seen += 1;
    return seen % every === 0 ? `\\u${token.charCodeAt(0).toString(16).padStart(4, '0')}` : token;
  };
  const strings = /"(?:[^"\\]|\\.)*"/gs;
  return text.replace(strings, (string) => string.replace(/\\u[0-9a-f]{4}|\\.|[a-zA-Z]/gs, escapeLetter));
}

describe('the scanner of JSON objects', () => {
  it('rejects everything except one object', () => {
    for (const text of [
      '',
      ' ',
      '[]',
      '"a"',
      '{',
      '{"a"}',
      '{"a":}',
      '{"a":1,}',
      '{"a":1}x',
      '{"a":1 "b":2}',
      '{a:1}',
      '{"a":[}',
      '{"a":{]}',
      '{"a":"b}',
      '{"a":01}',
      '{"a":tru}',
      '{"a":NaN}',
      '\ufeff{}',
    ]) {
      expect(scanDocument(latin1(text)), text).toMatchObject({ ok: false });
    }
  });

  it('finds the members that JSON.parse finds, with the same values, for any spacing and escapes', () => {
    fc.assert(
      fc.property(anyObject, anySpacing, fc.integer({ min: 1, max: 5 }), (value, spacing, every) => {
        const text = utf8(latin1(escapeSome(JSON.stringify(value, null, spacing), every)));
        const parsed: unknown = JSON.parse(text);
        const bytes = latin1(text);
        const scan = scanDocument(bytes);
        if (!scan.ok) throw new Error(`${scan.reason} at ${scan.offset} of ${text}`);
        const found = Object.fromEntries(
          scan.members.map((member) => [member.key, JSON.parse(utf8(bytes.slice(member.valueStart, member.valueEnd)))]),
        );
        expect(found).toEqual({ ...(parsed as object) });
      }),
      { numRuns: 2000 },
    );
  });

  it('never disagrees with JSON.parse on a text that both accept, after random damage', () => {
    fc.assert(
      fc.property(
        anyObject,
        fc.nat(),
        fc.constantFrom('"', '{', '}', '[', ']', ',', ':', '\\', 'e', '1', ' '),
        (value, place, damage) => {
          const text = JSON.stringify(value);
          const at = place % (text.length + 1);
          const damaged = utf8(latin1(text.slice(0, at) + damage + text.slice(at)));
          let parsed: unknown;
          try {
            parsed = JSON.parse(damaged);
          } catch {
            return;
          }
          const bytes = latin1(damaged);
          const scan = scanDocument(bytes);
          if (!scan.ok) throw new Error(`${scan.reason} at ${scan.offset} of ${damaged}`);
          const found = Object.fromEntries(
            scan.members.map((member) => [
              member.key,
              JSON.parse(utf8(bytes.slice(member.valueStart, member.valueEnd))),
            ]),
          );
          expect(found).toEqual({ ...(parsed as object) });
        },
      ),
      { numRuns: 5000 },
    );
  });

  it('removes any member so that the rest is the object without it', () => {
    fc.assert(
      fc.property(anyObject, anySpacing, fc.nat(), (value, spacing, choice) => {
        const keys = Object.keys(value);
        fc.pre(keys.length > 0);
        const bytes = latin1(JSON.stringify(value, null, spacing));
        const scan = scanDocument(bytes);
        if (!scan.ok) throw new Error(scan.reason);
        const member = scan.members[choice % scan.members.length];
        if (member === undefined) throw new Error('no member');
        const rest: unknown = JSON.parse(utf8(spliceText(bytes, [memberCut(member, scan.members)])));
        const expected = Object.fromEntries(Object.entries(value).filter(([key]) => key !== member.key));
        expect(rest).toEqual(JSON.parse(JSON.stringify(expected)));
      }),
    );
  });
});
