import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { listPages } from '#test/tidy/chapters.ts';
import { findOddComments, findOddTestNames, findOddWords, findOddWordsOfCode, type OddWord } from './words.ts';

const root = new URL('../../', import.meta.url).pathname;
const read = (path: string): string => readFileSync(root + path, 'utf8');

/**
 * Files with odd words that stay, and how many: names of jobs are names of their leases, which gateways of an older
 * version hold by the same name. A number may only get smaller.
 */
const allowed: Readonly<Record<string, number>> = {
  'src/app/alerts.ts': 2,
  'src/app/app.ts': 1,
  'src/app/budget-alerts.ts': 1,
  'src/app/platform.ts': 1,
  'src/app/runs.ts': 1,
};

function lines(path: string, found: readonly OddWord[]): string[] {
  return found.map(({ line, word }) => `${path}:${line}: ${word}`);
}

describe('the search for odd words', () => {
  it('finds them in comments, strings and templates, and not in names', () => {
    const text = "// for good\nconst alone = 'left behind';\nconst b = `a ${alone} of it came of`;\n";
    expect(lines('a.ts', findOddWordsOfCode('a.ts', text))).toEqual([
      'a.ts:1: for good',
      'a.ts:2: left behind',
      'a.ts:3: came of',
    ]);
  });

  it('finds them in Markdown outside of code', () => {
    expect(lines('a.md', findOddWords('# Mend\n\nUse `mend` alone.\n'))).toEqual(['a.md:1: mend', 'a.md:3: alone']);
  });

  it('finds them over the end of a line, and not over an empty line or code', () => {
    const text = '/** goes\n * by */\n// left\n// behind\n\n// left\n\n// behind\nconst left = behind;\n';
    expect(lines('a.ts', findOddWordsOfCode('a.ts', text))).toEqual(['a.ts:1: goes by', 'a.ts:3: left behind']);
    expect(lines('a.yaml', findOddWords('# left\n# behind\n\nleft\n\nbehind\n'))).toEqual(['a.yaml:1: left behind']);
  });

  it('finds them in the rows and constants that name tests', () => {
    const text = [
      "const name = 'goes by';",
      "const rows = [['alone', 1]];",
      "const other = 'mend';",
      "it.each([{ title: 'left behind' }])('%s', () => 1);",
      'it(name, () => other);',
      "it.each(rows)('%s', () => 1);",
    ].join('\n');
    expect(lines('a.ts', findOddTestNames('a.ts', text))).toEqual([
      'a.ts:1: goes by',
      'a.ts:2: alone',
      'a.ts:4: left behind',
    ]);
  });

  it('finds them in the names of tests', () => {
    const text = "it.each([1])('goes by %s', () => run('alone'));\nit('returns 409', () => 1);\n";
    expect(lines('a.test.ts', findOddTestNames('a.test.ts', text))).toEqual(['a.test.ts:1: goes by']);
  });
});

it('finds no more odd words than are allowed, file by file', () => {
  const code = globSync('{src,engines}/**/*.{ts,js}', { cwd: root });
  const tests = globSync('test/**/*.{ts,js}', { cwd: root }).filter((path) => !path.startsWith('test/tidy/words.'));
  const pages = listPages(root);
  const settings = globSync(['{compose,engines}/**/*.{yaml,yml,sh}', 'src/core/stacks/builtin/*/*', '.ci/run'], {
    cwd: root,
  });
  expect([code.length > 1000, tests.length > 500, pages.length > 20, settings.length > 20]).not.toContain(false);
  const found = [
    ...code.map((path) => ({ path, words: findOddWordsOfCode(path, read(path)) })),
    ...tests.map((path) => ({
      path,
      words: [...findOddComments(path, read(path)), ...findOddTestNames(path, read(path))],
    })),
    ...[...new Set([...pages, ...settings])].map((path) => ({ path, words: findOddWords(read(path)) })),
  ];
  const paths = found.map(({ path }) => path);
  const wrong = found.filter(({ path, words }) => words.length !== (allowed[path] ?? 0));
  expect(
    wrong.flatMap(({ path, words }) => [`${path}: may have ${allowed[path] ?? 0}`, ...lines(path, words)]),
  ).toEqual([]);
  expect(Object.keys(allowed).filter((path) => !paths.includes(path))).toEqual([]);
});
