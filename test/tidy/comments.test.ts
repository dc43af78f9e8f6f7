import { globSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { findPointingComments } from './comments.ts';

/** Such comments in tests, of older texts. The number may only get smaller. */
const left = 236;

const root = new URL('../../', import.meta.url).pathname;

it('finds comments that begin with a pointing word', () => {
  const text =
    '/** Returns one. */\nconst a = 1; // What it is.\n/**\n * Of two, the first.\n */\nconst b = "// Who";\n';
  expect(findPointingComments('a.ts', text)).toEqual(['a.ts:2: What it is.', 'a.ts:3: Of two, the first.']);
});

const pointingIn = (pattern: string, filesMin: number): string[] => {
  const paths = globSync(pattern, { cwd: root });
  expect(paths.length).toBeGreaterThan(filesMin);
  return paths.flatMap((path) => findPointingComments(path, readFileSync(root + path, 'utf8')));
};

it('finds no such comment in src and engines', () => {
  expect(pointingIn('{src,engines}/**/*.{ts,js}', 1000)).toEqual([]);
});

it('finds no such comment in the programs of tests, and no more than are left in tests', () => {
  expect(pointingIn('test/{bench,chaos,fuzz,support}/**/*.{ts,js}', 100)).toEqual([]);
  expect(pointingIn('test/**/*.{ts,js}', 500)).toHaveLength(left);
});
