import fc from 'fast-check';
import { pickOf } from './pick.ts';
import { stringify } from 'yaml';
import { applyCut, type Cut, cutsOf } from './byte-cuts.ts';
import { changed, changesOf } from './odd-values.ts';

/** Texts of YAML: fields of a file as it should be, changed in what they say, in how it is written, and in its bytes. */

const repeated = (text: string): fc.Arbitrary<string> => fc.nat(4000).map((count) => text.repeat(count));

/** Nine lists of nine of the one before, so many times. */
function aliasBomb(levels: number): string {
  const line = (level: number): string => {
    const item = level === 0 ? 'x' : `*b${level - 1}`;
    return `b${level}: &b${level} [${Array.from({ length: 9 }, () => item).join(', ')}]\n`;
  };
  return Array.from({ length: levels }, (_, level) => line(level)).join('');
}

const snippets: fc.Arbitrary<string> = fc.oneof(
  {
    weight: 8,
    arbitrary: pickOf(
      ['&a ', '*a', '<<: *a\n', '&a [*a]', 'x: &x {y: *x}\n', '!!binary aGk=', '!!set {a}', '!!js/function x'],
      ['!!float ', '!!timestamp 2001-01-01', '!env HOME', '!<tag:x,2000:y> ', '? [a, b]\n: c\n', '? {a: b}\n: c\n'],
      ['%YAML 1.1\n---\n', '%YAML 3.0\n---\n', '%TAG ! x\n---\n', '---\n', '...\n', '\t', '\ufeff', '\0', '\r'],
      ['\u0085', '\u2028', '#', ' # x', '"', "'", '|\n', '|9\n', '>-\n', '[', ']', '{', '}', '- ', ': ', ', ', '@'],
      ['`', '%', '~', '\\', '"\\x"', '"\\ud800"', '"\\U00110000"', '__proto__: {x: 1}\n', '? __proto__\n: 1\n'],
      ['.inf', '-.inf', '.nan', '0x7fffffffffffffffff', '0o777', '1_000', '1e999', '12345678901234567890', '0b1'],
      ['- - - - - x', 'null: 1\n', '1: 2\n', 'true: false\n', 'id: again\n', '  indented: 1\n', '\n\n\n'],
    ),
  },
  { weight: 1, arbitrary: fc.nat(12).map(aliasBomb) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('[', '{a: ', '- ', '? ', '[[', '!!x ', '&a ', '(', '"', "'").chain(repeated),
  },
  {
    weight: 1,
    arbitrary: fc.nat(1000).map((deep) => Array.from({ length: deep }, (_, at) => `${' '.repeat(at)}a:\n`).join('')),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 12 }) },
);

const styles = fc.constantFrom<(value: unknown) => string>(
  (value) => stringify(value),
  (value) => stringify(value, { collectionStyle: 'flow' }),
  (value) => stringify(value, { defaultStringType: 'QUOTE_DOUBLE', indent: 4 }),
  (value) => JSON.stringify(value) ?? 'null',
);

/** Most files are as they should be but for one thing, some for several; many are as they should be. */
export function yamlFiles(whole: fc.Arbitrary<unknown>): fc.Arbitrary<Buffer> {
  const changes = fc.oneof({ weight: 1, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: changesOf() });
  const cuts = fc.oneof({ weight: 2, arbitrary: fc.constant<Cut[]>([]) }, { weight: 1, arbitrary: cutsOf(snippets) });
  return fc
    .record({ whole, changes, style: styles, cuts })
    .map((file) => file.cuts.reduce(applyCut, Buffer.from(file.style(changed(file.whole, file.changes)))));
}
