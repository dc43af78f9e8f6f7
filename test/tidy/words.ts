import { parseSync, Visitor } from 'oxc-parser';

/** Odd words of old texts, each with the word of the field that says the same. A key is a source of a regular expression. */
export const oddWords: Readonly<Record<string, string>> = {
  'for (?:good|ever)': 'permanently, indefinitely',
  'mend(?:s|ed|ing)?': 'fix',
  '(?:go|goes|going|went) by': 'apply, use',
  'left behind': 'orphaned',
  '(?:came|comes|come|becomes|became) of': 'result, outcome',
  'took (?:over|up again)': 'adopted',
  'taken in': 'accepted',
  'another secret': 'new secret',
  'is to be|are to be|was to be|were to be': 'pending, due',
  'of somebody else|that others run': 'external',
  '(?:is|are|was|were|be|been|being) (?:told|said)': 'is reported, is logged',
  '(?:tell|tells|telling) (?:of|its|their|the|how|what|who|whether|which|that|no|nothing)': 'report, log, notify',
  alone: 'only, exclusive',
  'thereof|therein|henceforth|wherein': 'the name of the thing',
};

const pattern = new RegExp(`\\b(?:${Object.keys(oddWords).join('|')})\\b`, 'gi');

export interface OddWord {
  readonly line: number;
  readonly word: string;
}

/** Finds odd words in a text, Markdown for example; code between backticks is not read. */
export function findOddWords(text: string): OddWord[] {
  return text.split('\n').flatMap((line, index) => oddWordsOf(line.replace(/`[^`]*`/g, ''), index + 1));
}

/**
 * Finds odd words in the strings and comments of a program.
 * @param path of the file, for its language
 */
export function findOddWordsOfCode(path: string, text: string): OddWord[] {
  const { program, comments } = parseSync(path, text);
  const texts: { start: number; value: string }[] = comments.map(({ start, value }) => ({ start, value }));
  new Visitor({
    Literal: ({ start, value }) => {
      if (typeof value === 'string') texts.push({ start, value });
    },
    TemplateElement: ({ start, value }) => {
      texts.push({ start, value: value.cooked ?? value.raw });
    },
  }).visit(program);
  return texts.flatMap(({ start, value }) => {
    const first = text.slice(0, start).split('\n').length;
    return findOddWords(value).map(({ line, word }) => ({ line: first + line - 1, word }));
  });
}

/** Finds odd words in the names of tests: first arguments of `it`, `test`, `describe` and of their `each`. */
export function findOddTestNames(path: string, text: string): OddWord[] {
  const found: OddWord[] = [];
  new Visitor({
    CallExpression: ({ callee, arguments: [name] }) => {
      if (name === undefined || !isTestCall(text.slice(callee.start, callee.end))) return;
      if (name.type !== 'Literal' && name.type !== 'TemplateLiteral') return;
      const line = text.slice(0, name.start).split('\n').length;
      found.push(...oddWordsOf(text.slice(name.start, name.end), line));
    },
  }).visit(parseSync(path, text).program);
  return found;
}

function isTestCall(callee: string): boolean {
  return /^(?:it|test|describe)(?:\.\w+)*(?:\(|$)/.test(callee);
}

function oddWordsOf(text: string, line: number): OddWord[] {
  return [...text.matchAll(pattern)].map(([word]) => ({ line, word: word.toLowerCase() }));
}
