import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AroundList, ListPieces } from '#base/json/list-pieces.ts';

const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

/** Feeds a text in pieces of the lengths given, the last of them for all that follow. */
function walk(text: string, lengths: readonly number[], added: number): { around: AroundList | null; list: string } {
  let list = '';
  const onElements = (elements: string): void => void (list += elements);
  const pieces = new ListPieces({ listKey: 'data', numberKey: 'index', added, onElements });
  let at = 0;
  for (let count = 0; at < text.length; count += 1) {
    const length = lengths[Math.min(count, lengths.length - 1)] ?? 1;
    pieces.feed(text.slice(at, at + length));
    at += length;
  }
  return { around: pieces.end(), list };
}

const anyKey = fc.oneof(fc.constantFrom('index', 'data', 'embedding'), fc.string({ unit: 'binary', maxLength: 6 }));
const anyValue = fc.jsonValue({ maxDepth: 3, stringUnit: 'binary' });
const otherMembers = (...without: string[]) =>
  fc.dictionary(
    anyKey.filter((key) => !without.includes(key)),
    fc.oneof(anyValue, fc.constantFrom('index', 'data', { data: [{ index: 1 }] }, [{ index: 2 }])),
    { maxKeys: 4 },
  );
const anyElement = fc
  .tuple(otherMembers('index'), fc.nat(5000), otherMembers('index'))
  .map(([before, index, after]) => ({ ...before, index, ...after }));
const anyObject = fc
  .tuple(otherMembers('data'), fc.array(anyElement, { maxLength: 4 }), otherMembers('data'))
  .map(([before, data, after]) => ({ ...before, data, ...after }));
const anyLengths = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 8 });
const anySpacing = fc.constantFrom(undefined, 1, '\t');

describe('the parser for an object with a list, read in pieces', () => {
  it('separates the elements from the rest and raises their indexes, for any division of the text', () => {
    fc.assert(
      fc.property(anyObject, anySpacing, anyLengths, fc.nat(9000), (object, spacing, lengths, added) => {
        const { around, list } = walk(latin1(JSON.stringify(object, null, spacing)), lengths, added);
        const elements = object.data.map((element) => ({ ...element, index: element.index + added }));
        const made = Buffer.from(`[${list}]`, 'latin1').toString('utf8');
        expect(JSON.parse(made)).toEqual(JSON.parse(JSON.stringify(elements)));
        expect(JSON.parse(Buffer.from(around?.text ?? '', 'latin1').toString('utf8'))).toEqual(
          JSON.parse(JSON.stringify({ ...object, data: [] })),
        );
        expect(around?.elements).toBe(elements.length);
        expect(around?.largest).toBe(Math.max(-1, ...object.data.map(({ index }) => index)));
      }),
      { numRuns: 1000 },
    );
  });

  it("keeps every byte that is not an element's index", () => {
    const text = '{ "a" : "data" ,"data" : [ {"x":"index","index" : 7 ,"y":[1,2]} , {"index":8} ],"b":{"index":1} }\n';
    for (const length of [1, 2, 3, 100]) {
      const { around, list } = walk(text, [length], 10);
      expect(list).toBe(' {"x":"index","index" : 17 ,"y":[1,2]} , {"index":18} ');
      expect(around).toEqual({
        text: '{ "a" : "data" ,"data" : [],"b":{"index":1} }\n',
        elements: 2,
        largest: 8,
      });
    }
  });

  it('leaves elements without an index unchanged', () => {
    expect(walk('{"data":[{"x":1},{}]}', [3], 5)).toEqual({
      around: { text: '{"data":[]}', elements: 2, largest: -1 },
      list: '{"x":1},{}',
    });
  });

  it.each([
    '',
    '[]',
    '{}',
    '{"data":1}',
    '{"data":{}}',
    '{"data":[{"index":0}]',
    '{"data":[{"index":0]}',
    '{"data":["index"]}',
    '{"data":[[0]]}',
    '{"data":[{"index":"0"}]}',
    '{"data":[{"index":-1}]}',
    '{"data":[{"index":1.5}]}',
    '{"data":[]}{"data":[]}',
    '{"a":{"data":[]}}',
    `{"data":[{"index":${' '.repeat(300)}0}]}`,
    `{"a":"${'a'.repeat(70_000)}","data":[]}`,
    `{"data":[{"a":${'['.repeat(1000)}${']'.repeat(1000)}}]}`,
  ])('rejects %.60s', (text) => {
    for (const length of [1, 7, 100_000]) expect(walk(text, [length], 1).around).toBeNull();
  });
});
