import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { patternSize } from '#edge/inference/rules/pattern-size.ts';
import { SchemaMeter } from '#edge/inference/rules/schema-bounds.ts';

const bounds = { choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 };
const strict = { regex: false, grammar: false };
const measure = (schema: unknown): string | null => new SchemaMeter(bounds, strict).add(schema);

describe('the size of a pattern', () => {
  it.each([
    ['', 0],
    ['abc', 0.06],
    ['[a-z]*', 0.15],
    ['\\d{4}', 0.08],
    ['.{0,100}', 100],
    ['[^x]{100}', 100],
    ['\\S{2,}', 2],
    ['[a-z]{0,100}', 15],
    ['(?:ab){10}', 0.4],
    ['(?<name>.){3}', 3],
    ['(?=.{3})x', 3.02],
    ['^{2}$', Number.POSITIVE_INFINITY],
    ['(', Number.POSITIVE_INFINITY],
    [')', Number.POSITIVE_INFINITY],
    ['\\(', 0.02],
    ['[(]', 0.02],
    ['[](]', 0.02],
    ['[^]]{7}', 7],
    ['[\\]]{50}', 1],
    ['a{,5}', 0.1],
    ['a{', 0.04],
    ['a{x}', 0.08],
    ['(a*){2}', Number.POSITIVE_INFINITY],
    ['(?:a|){2}', Number.POSITIVE_INFINITY],
    ['(a|.){10}', 81.6],
    ['\\d{128}', 2.56],
    ['\\d{0,129}', Number.POSITIVE_INFINITY],
    ['(\\d{100}){11}', Number.POSITIVE_INFINITY],
    ['[^a]'.repeat(1000), 1000],
    ['(.+,)+'.repeat(500), 510],
    ['.?'.repeat(10), 100],
    ['[a-z]'.repeat(1000), 150],
  ])('of %.40s is %d', (pattern, size) => {
    expect(patternSize(pattern)).toBeCloseTo(size, 5);
  });

  it('is computed quickly for any text', () => {
    const piece = fc.constantFrom(...'ab.()[]{}|*+?^$\\-,019'.split(''), '{0,9}', '(?:', '[^', '\\d', '.{3}', '()');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
        const size = patternSize(pieces.join(''));
        expect(size >= 0).toBe(true);
      }),
      { numRuns: 2000 },
    );
    expect(patternSize('('.repeat(60_000))).toBe(Number.POSITIVE_INFINITY);
    expect(patternSize(`${'('.repeat(30_000)}a${')'.repeat(30_000)}`)).toBeCloseTo(0.02, 5);
    expect(patternSize('a{1'.repeat(20_000))).toBeCloseTo(1200, 5);
    expect(patternSize('[a-'.repeat(20_000))).toBeLessThan(2);
  });

  it('never shrinks when the pattern grows', () => {
    const atom = fc.constantFrom('.', 'a', '[a-z]', '\\d', '(?:ab)', '[^x]');
    fc.assert(
      fc.property(atom, fc.nat(300), fc.nat(300), (text, one, more) => {
        const smaller = patternSize(`${text}{0,${one}}`);
        expect(patternSize(`${text}{0,${one + more}}`)).toBeGreaterThanOrEqual(smaller);
        expect(patternSize(`${text}{0,${one}}${text}{0,${more}}`)).toBeGreaterThanOrEqual(smaller);
      }),
    );
  });
});

describe('a schema', () => {
  it('is measured without an exception for any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), fc.jsonValue({ maxDepth: 3 }), (value, other) => {
        const problem = measure({ properties: { a: value }, enum: [other], patternProperties: other, pattern: value });
        expect(problem === null || problem.length > 0).toBe(true);
      }),
    );
  });

  it('is rejected when it is nested too deeply', () => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
      ['{"enum":[', ']}'],
      ['{"const":{"a":', '}}'],
    ] as const) {
      const text = `${open.repeat(900)}1${close.repeat(900)}`;
      expect(measure({ x: JSON.parse(text) as unknown })).toContain('16');
    }
  });

  it('may have minProperties on small objects only', () => {
    const object = (count: number): object => ({
      properties: Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${at}`, {}])),
      minProperties: 1,
    });
    expect(measure(object(31))).toBeNull();
    expect(measure(object(32))).toContain('minProperties');
    expect(measure({ items: [object(16), object(16), object(16), object(16)] })).toContain('minProperties');
  });
});
