import { globSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { findPointingComments } from './comments.ts';

const root = new URL('../../', import.meta.url).pathname;

it('finds comments that begin with a pointing word', () => {
  const text =
    '/** Returns one. */\nconst a = 1; // What it is.\n/**\n * Of two, the first.\n */\nconst b = "// Who";\n';
  expect(findPointingComments('a.ts', text)).toEqual(['a.ts:2: What it is.', 'a.ts:3: Of two, the first.']);
});

it('finds no such comment in the repository', () => {
  const paths = globSync('{src,engines,test}/**/*.{ts,js}', { cwd: root });
  expect(paths.length).toBeGreaterThan(1500);
  expect(paths.flatMap((path) => findPointingComments(path, readFileSync(root + path, 'utf8')))).toEqual([]);
});
