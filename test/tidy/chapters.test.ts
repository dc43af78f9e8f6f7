import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { chaptersOf, filesBehind, findDeadLinks, listPages } from '#test/tidy/chapters.ts';

const root = new URL('../..', import.meta.url).pathname;
const paths = listPages(root);
const pages = new Map(paths.map((path) => [path, readFileSync(`${root}${path}`, 'utf8')]));
const chapters = chaptersOf(paths);

/** The most bytes of a page: the first page is read in minutes, a chapter in a quarter of an hour. */
const largest = 25_000;

/** Results of the check for a page that lies in compose/, beside the existing pages. */
function deadLinksOf(text: string): string[] {
  return findDeadLinks(new Map([...pages, ['compose/made-up.md', text]]), root);
}

describe('the check of links', () => {
  it('fails when it has found no links', () => {
    expect(findDeadLinks(new Map([['README.md', 'Nothing here, and `[no](link.md)`.']]), root)).toHaveLength(1);
  });

  it('rejects missing files and headings', () => {
    const text = [
      '[a](nothing.md) [b](../README.md#nothing) [c](#nothing) [d](../../README.md) [e](compose.yaml#services)',
      '`code` [f](nothing-too.md) `code`',
      '# Something else',
    ].join('\n');
    expect(deadLinksOf(text)).toEqual([
      'compose/made-up.md links nothing.md, which is not there',
      'compose/made-up.md links ../README.md#nothing, and README.md has no such heading',
      'compose/made-up.md links #nothing, and compose/made-up.md has no such heading',
      'compose/made-up.md links ../../README.md, which is not there',
      'compose/made-up.md links compose.yaml#services, and compose/compose.yaml has no such heading',
      'compose/made-up.md links nothing-too.md, which is not there',
    ]);
  });

  it('ignores headings in code blocks', () => {
    expect(deadLinksOf('[a](#not-one)\n\n```sh\n# Not one\n```\n')).toHaveLength(1);
  });

  it('finds headings by their anchors, and ignores other addresses and code', () => {
    const text = [
      "# `X` and OpenAI's, [twice](../README.md)",
      '# Twice',
      '# Twice',
      '[a](#x-and-openais-twice) [b](#twice-1) [c](https://example.org/nothing.md) `[d](nothing.md)` [e](systemd/)',
      '```md\n[f](nothing.md)\n```',
    ].join('\n\n');
    expect(deadLinksOf(text)).toEqual([]);
  });
});

describe('the README and its chapters', () => {
  it('contain no dead link', () => {
    expect(findDeadLinks(pages, root)).toEqual([]);
  });

  it('are short enough to read', () => {
    const sizes = [...pages].map(([path, text]) => ({ path, bytes: Buffer.byteLength(text) }));
    expect(sizes.filter(({ bytes }) => bytes > largest)).toEqual([]);
  });

  it('are linked from the README', () => {
    expect(chapters.length).toBeGreaterThan(10);
    const linked = filesBehind('README.md', pages.get('README.md') ?? '');
    expect(chapters.filter((path) => !linked.has(path))).toEqual([]);
  });

  it('are the pages that messages name, and are in the package', () => {
    const { files }: { files: string[] } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
    const packed = new Set(['README.md', ...globSync(files, { cwd: root })]);
    const named = globSync('{src,engines}/**/*.{ts,js}', { cwd: root }).flatMap((path) =>
      namedIn(readFileSync(`${root}${path}`, 'utf8')).map((name) => ({ path, name })),
    );
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter(({ name }) => !pages.has(name) || !packed.has(name))).toEqual([]);
    expect(chapters.filter((path) => !/^(?:test|\.github)\//.test(path) && !packed.has(path))).toEqual([]);
  });
});

/** Pages that code names; comments are for who has the repository. */
function namedIn(text: string): string[] {
  const code = text.replaceAll(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, '');
  return [...code.matchAll(/(?<![\w/.-])[\w/.-]*\w\.md\b/g)].map(([name]) => name);
}
