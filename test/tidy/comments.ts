import { parseSync } from 'oxc-parser';

/** Words that point at a thing in place of its name. A comment begins with a verb or a noun. */
const pointing = /^(?:What|Whatever|Whether|Who|Whose|Whoever|Which|Of|That)\b/;

/**
 * Finds comments that begin with a pointing word.
 * @param path of the file, for the result and the language
 * @returns one line per comment: path, line, and how the comment begins
 */
export function findPointingComments(path: string, text: string): string[] {
  return parseSync(path, text).comments.flatMap(({ value, start }) => {
    const first = value.replace(/^\*?[\s*]*/, '');
    if (!pointing.test(first)) return [];
    const line = text.slice(0, start).split('\n').length;
    return [`${path}:${line}: ${first.slice(0, 60).split('\n')[0]}`];
  });
}
