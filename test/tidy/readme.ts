import { globSync } from 'node:fs';

/** The result for a text that names no path at all. */
export const noPath = 'the README names no path, so nothing was checked';

/** Folders whose files the README names; what begins otherwise is a URL, a model or a file of the reader's. */
const named = /(?<![\w/.:-])((?:\.\/)?(?:src|test|engines|drizzle|compose|\.ci)\/[\w./*<>-]*[\w*/])/g;

/** Files that an operator makes, and git ignores. */
const operators = /^compose\/(\.env$|secrets\b)/;

/**
 * Finds what a README says that the repository does not hold: paths, and scripts of package.json.
 * @param root of the repository, with a slash at its end
 * @returns one sentence per dead name; a text that names no path at all is a fault of the check
 */
export function findDeadNames(text: string, root: string, scripts: readonly string[]): string[] {
  const paths = [...new Set([...text.matchAll(named)].map((match) => match[1] ?? ''))];
  if (paths.length === 0) return [noPath];
  const isDead = (path: string): boolean => globSync(path.replaceAll(/<\w+>/g, '*'), { cwd: root }).length === 0;
  const runs = [...new Set([...text.matchAll(/\bnpm run (?:--?[\w-]+ )*([\w:-]+)/g)].map((match) => match[1] ?? ''))];
  return [
    ...paths
      .filter((path) => !operators.test(path) && isDead(path))
      .map((path) => `the README names ${path}, which is not there`),
    ...runs
      .filter((name) => !scripts.includes(name))
      .map((name) => `the README names npm run ${name}, which is not there`),
  ];
}

/** The lines of a picture that list rooms: the floor's name or the arrow, then names of rooms. */
const floorLine = /^(edge|core|base|   │)(?: {2,}(.*))?$/;

/**
 * Finds rooms in the picture of src that are not folders of their floor.
 * @param text the page, whose first code block is the picture
 * @param wings names of the groups of rooms in core
 * @param roomsOf returns the folders of a floor
 * @returns one sentence per wrong name; a picture without rooms is a fault of the check
 */
export function findWrongRooms(
  text: string,
  wings: readonly string[],
  roomsOf: (floor: string) => readonly string[],
): string[] {
  const picture = /^```text\n(.*?)^```/ms.exec(text)?.[1] ?? '';
  const wrong: string[] = [];
  let floor = '';
  let found = 0;
  for (const line of picture.split('\n')) {
    const [, head = '', rest = ''] = floorLine.exec(line) ?? [];
    floor = line.startsWith(' ') ? floor : head;
    if (floor === '') continue;
    const isWings = head === 'core';
    // "http: authentication" describes one room; the others are only named.
    const names = (/([\w-]+):/.exec(rest)?.slice(1) ?? rest.split(/ +/)).filter((name) => /^[a-z]/.test(name));
    const known = isWings ? wings : roomsOf(floor);
    found += names.length;
    const missing = names.filter((name) => !known.includes(name));
    wrong.push(...missing.map((name) => `the picture has ${name} in ${floor}, which is not there`));
  }
  return found === 0 ? ['the picture has no rooms, so nothing was checked'] : wrong;
}
