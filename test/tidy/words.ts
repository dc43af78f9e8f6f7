import { type CallExpression, parseSync, type Program, Visitor } from 'oxc-parser';

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
  '(?:is|are|was|were) gone': 'is deleted, has ended',
  '(?:is|are|was|were) away': 'is unavailable, is unreachable',
  '(?:is|are|was|were|be|been|being) refused': 'is rejected',
  'thereof|therein|henceforth|wherein': 'the name of the thing',
};

/** One space, or the end of a line of a wrapped text with the mark that begins the next line of a comment. */
const gap = String.raw`(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*(?:(?:\*|//|#)[^\S\n]+)?)`;
const pattern = new RegExp(`\\b(?:${Object.keys(oddWords).join('|').replaceAll(' ', gap)})\\b`, 'gi');

export interface OddWord {
  readonly line: number;
  readonly word: string;
}

interface Passage {
  readonly start: number;
  readonly end: number;
}

/** Finds odd words in a text: Markdown, YAML or a shell script. Code between backticks is not read. */
export function findOddWords(text: string): OddWord[] {
  const prose = text.replace(/`[^`\n]*`/g, '');
  return [...prose.matchAll(pattern)].map(({ 0: word, index }) => ({
    line: lineAt(prose, index),
    word: word.toLowerCase().replace(/\s+(?:(?:\*|\/\/|#)\s+)?/g, ' '),
  }));
}

/**
 * Finds odd words in the strings and comments of a program.
 * @param path of the file, for its language
 */
export function findOddWordsOfCode(path: string, text: string): OddWord[] {
  return [...findOddComments(path, text), ...findIn(text, stringsOf(parseSync(path, text).program))];
}

/**
 * Finds odd words in the comments of a program. Comments on lines that follow each other are one text.
 * @param path of the file, for its language
 */
export function findOddComments(path: string, text: string): OddWord[] {
  const passages: Passage[] = [];
  for (const { start, end } of parseSync(path, text).comments) {
    const last = passages.at(-1);
    const follows = last !== undefined && /^[^\S\n]*\n[^\S\n]*$/.test(text.slice(last.end, start));
    if (follows) passages.splice(-1, 1, { start: last.start, end });
    else passages.push({ start, end });
  }
  return findIn(text, passages);
}

/**
 * Finds odd words in the names of tests: in first arguments of `it`, `test` and `describe`, in rows of their `each`,
 * and in constants that stand in those places.
 * @param path of the file, for its language
 */
export function findOddTestNames(path: string, text: string): OddWord[] {
  const { program } = parseSync(path, text);
  const constants = new Map<string, Passage>();
  const calls: CallExpression[] = [];
  new Visitor({
    VariableDeclarator: ({ id, init }) => {
      if (id.type === 'Identifier' && init !== null) constants.set(id.name, init);
    },
    CallExpression: (call) => {
      if (/^(?:it|test|describe)\b/.test(text.slice(call.start, call.end))) calls.push(call);
    },
  }).visit(program);
  const places = calls.flatMap(({ arguments: [name] }) => {
    if (name === undefined) return [];
    return [(name.type === 'Identifier' ? constants.get(name.name) : undefined) ?? name];
  });
  const isInPlace = ({ start, end }: Passage) => places.some((place) => place.start <= start && end <= place.end);
  return findIn(text, stringsOf(program).filter(isInPlace));
}

function stringsOf(program: Program): Passage[] {
  const strings: Passage[] = [];
  new Visitor({
    Literal: (literal) => {
      if (typeof literal.value === 'string') strings.push(literal);
    },
    TemplateElement: (element) => {
      strings.push(element);
    },
  }).visit(program);
  return strings;
}

function findIn(text: string, passages: readonly Passage[]): OddWord[] {
  return passages.flatMap(({ start, end }) => {
    const before = lineAt(text, start) - 1;
    return findOddWords(text.slice(start, end)).map(({ line, word }) => ({ line: before + line, word }));
  });
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length;
}
