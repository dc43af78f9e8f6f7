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
