import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { chaptersOf, listPages } from '#test/tidy/chapters.ts';
import { house } from './house.js';
import { findDeadNames, findWrongRooms, noPath } from './readme.ts';

const root = new URL('../..', import.meta.url).pathname;
const packageFile: { scripts: Record<string, string> } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
const scripts = Object.keys(packageFile.scripts);
const wings = Object.keys(house.wings);
const roomsOf = (floor: string): string[] => readdirSync(`${root}src/${floor}`);

describe('the check of the README', () => {
  it('fails when it has found no names', () => {
    expect(findDeadNames('Nothing here.', root, scripts)).toHaveLength(1);
  });

  it('rejects a missing path, in code, links and trees', () => {
    const text = 'See `src/base/nothing.ts`, [b](test/nothing/), and src/core/nothing, not src/base/log.ts.';
    expect(findDeadNames(text, root, scripts)).toEqual([
      'the README names src/base/nothing.ts, which is not there',
      'the README names test/nothing/, which is not there',
      'the README names src/core/nothing, which is not there',
    ]);
  });

  it('rejects a missing npm script', () => {
    const text = '`npm run verify` and `npm run nothing` for src/base/log.ts';
    expect(findDeadNames(text, root, scripts)).toEqual(['the README names npm run nothing, which is not there']);
  });

  it('ignores files that an operator creates, and rejects similar names', () => {
    const text = '`compose/.env`, compose/secrets/any_key and compose/.environment, for src/base/log.ts';
    expect(findDeadNames(text, root, scripts)).toEqual(['the README names compose/.environment, which is not there']);
  });

  it('ignores URLs, patterns and placeholders', () => {
    const text =
      'https://example.org/src/nothing.ts, `src/core/*/schema.ts`, `src/core/<room>/schema.ts`, src/base/log.ts.';
    expect(findDeadNames(text, root, scripts)).toEqual([]);
  });
});

describe('the check of the picture of src', () => {
  const map = readFileSync(`${root}src/README.md`, 'utf8');

  it('fails when it has found no rooms', () => {
    expect(findWrongRooms('Nothing here.', wings, roomsOf)).toHaveLength(1);
  });

  it.each([
    ['  portal  cli  ', '  gate  cli  ', 'the picture has gate in edge, which is not there'],
    [' contract: ', ' answers: ', 'the picture has answers in edge, which is not there'],
    [' platform  ', ' machines  ', 'the picture has machines in core, which is not there'],
    [' web-addresses   ', ' exposures   ', 'the picture has exposures in core, which is not there'],
    ['  redis  ', '  sqlite  ', 'the picture has sqlite in base, which is not there'],
  ])('finds a wrong name instead of "%s"', (name, other, fault) => {
    expect(map).toContain(name);
    expect(findWrongRooms(map.replace(name, other), wings, roomsOf)).toContain(fault);
  });
});

describe('the README', () => {
  it('has only rooms of src in its picture', () => {
    expect(findWrongRooms(readFileSync(`${root}src/README.md`, 'utf8'), wings, roomsOf)).toEqual([]);
  });

  it('names only existing files and scripts', () => {
    for (const path of ['README.md', 'src/README.md', 'compose/README.md', 'engines/README.md', 'test/README.md']) {
      expect(findDeadNames(readFileSync(`${root}${path}`, 'utf8'), root, scripts), path).toEqual([]);
    }
  });

  it('has chapters that name only existing files and scripts', () => {
    const chapters = chaptersOf(listPages(root));
    expect(chapters.length).toBeGreaterThan(10);
    for (const path of chapters) {
      const dead = findDeadNames(readFileSync(`${root}${path}`, 'utf8'), root, scripts);
      // Not every chapter has something to name.
      expect(
        dead.filter((sentence) => sentence !== noPath),
        path,
      ).toEqual([]);
    }
  });
});
