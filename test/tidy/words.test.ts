import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { listPages } from '#test/tidy/chapters.ts';
import { findOddTestNames, findOddWords, findOddWordsOfCode, type OddWord } from './words.ts';

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

  it('finds them in the names of tests', () => {
    const text = "it.each([1])('goes by %s', () => run('alone'));\nit('returns 409', () => 1);\n";
    expect(lines('a.test.ts', findOddTestNames('a.test.ts', text))).toEqual(['a.test.ts:1: goes by']);
  });
});

it('finds no more odd words than are allowed, file by file', () => {
  const code = globSync('src/**/*.{ts,js}', { cwd: root });
  const tests = globSync('test/**/*.test.ts', { cwd: root });
  const pages = listPages(root);
  expect([code.length > 1000, tests.length > 500, pages.length > 20]).toEqual([true, true, true]);
  const found = [
    ...code.map((path) => ({ path, words: findOddWordsOfCode(path, read(path)) })),
    ...tests.map((path) => ({ path, words: findOddTestNames(path, read(path)) })),
    ...pages.map((path) => ({ path, words: findOddWords(read(path)) })),
  ].filter(({ path, words }) => words.length !== (allowed[path] ?? 0));
  const stale = Object.keys(allowed).filter((path) => ![...code, ...tests, ...pages].includes(path));
  expect(
    found.flatMap(({ path, words }) => [`${path}: may have ${allowed[path] ?? 0}`, ...lines(path, words)]),
  ).toEqual([]);
  expect(stale).toEqual([]);
});
