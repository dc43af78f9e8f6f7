import { existsSync, globSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** Files in Markdown by their path from the root of the repository. */
export type Pages = ReadonlyMap<string, string>;

/** Stacks that come with the product: what is beside a module belongs to its package, and stands on its page. */
const packages = 'src/core/stacks/builtin/';

/** Paths of all READMEs and of what is written beside them. */
export function listPages(root: string): string[] {
  const isInstalled = (path: string): boolean => path.split('/').includes('node_modules');
  return globSync(['*.md', '.github/*.md', '{src,engines,compose,drizzle,test}/**/*.md'], {
    cwd: root,
    exclude: isInstalled,
  }).toSorted();
}

/** Those of them that are chapters of the README. */
export function chaptersOf(paths: readonly string[]): string[] {
  return paths.filter((path) => path !== 'README.md' && !path.startsWith(packages));
}

/**
 * Finds links that lead nowhere: to a file that is not there, or to a heading that a page does not have.
 * @param root of the repository, with a slash at its end
 * @returns one sentence per dead link; pages without any link are a fault of the check
 */
export function findDeadLinks(pages: Pages, root: string): string[] {
  const links = [...pages].flatMap(([path, text]) => linksOf(text).map((link) => ({ path, link })));
  if (links.length === 0) return ['the pages have no link, so nothing was checked'];
  return links.flatMap(({ path, link }) => {
    const [file = '', anchor] = link.split('#');
    const target = file === '' ? path : normalize(join(dirname(path), decodeURI(file)));
    const isThere = pages.has(target) || (!target.startsWith('..') && existsSync(join(root, target)));
    if (!isThere) return [`${path} links ${link}, which is not there`];
    const text = pages.get(target);
    if (anchor === undefined || (text !== undefined && anchorsOf(text).has(anchor))) return [];
    return [`${path} links ${link}, and ${target} has no such heading`];
  });
}

/** Files that links of a page lead to, by their path from the root. */
export function filesBehind(path: string, text: string): Set<string> {
  return new Set(linksOf(text).map((link) => normalize(join(dirname(path), link.split('#')[0] ?? ''))));
}

/** Targets of links within the repository; what stands as code is none. */
function linksOf(text: string): string[] {
  const prose = withoutFences(text).replaceAll(/(`+)(?!`).*?(?<!`)\1(?!`)/g, 'code');
  const targets = [...prose.matchAll(/\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)/g)].map((match) => match[1] ?? '');
  return targets.filter((target) => !/^[a-z][a-z\d+.-]*:/i.test(target));
}

/** Anchors of headings, as GitHub makes them. */
function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading = ''] of withoutFences(text).matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const anchor = words.replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '').replaceAll(/\s/g, '-');
    let free = anchor;
    for (let count = 1; anchors.has(free); count++) free = `${anchor}-${count}`;
    anchors.add(free);
  }
  return anchors;
}

function withoutFences(text: string): string {
  return text.replaceAll(/^( *)(```+|~~~+).*\n[^]*?^\1\2 *$/gm, '');
}
