import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  parseDocument,
  Parser,
  visit,
} from 'yaml';

/** A parsed YAML text with the line of each field. */
export interface YamlSource {
  readonly value: unknown;
  /** Returns the line (from 1) of the field at a path, or of the nearest existing parent. */
  lineOf(path: readonly PropertyKey[]): number;
}

export interface YamlProblem {
  /** Line number from 1. */
  readonly line: number;
  readonly message: string;
}

export type YamlResult =
  | { readonly ok: true; readonly source: YamlSource }
  | { readonly ok: false; readonly problems: readonly YamlProblem[] };

export interface YamlOptions {
  /** True to merge the map behind `<<`, as in YAML 1.1. */
  readonly merge?: boolean;
  /** Changes the document before it is converted to values. */
  readonly prepare?: (document: Document) => void;
}

/**
 * Reads one YAML 1.2 document whose value can be written as JSON: no cycles, and only text keys. Problems do not quote
 * the text, which may contain a secret.
 */
export function readYaml(text: string, { merge = false, prepare }: YamlOptions = {}): YamlResult {
  const deep = depthProblem(text);
  if (deep !== null) return { ok: false, problems: [deep] };
  const lineCounter = new LineCounter();
  const lineAt = (offset: number): number => lineCounter.linePos(offset).line;
  const document = parseDocument(text, {
    lineCounter,
    version: '1.2',
    merge,
    uniqueKeys: true,
    prettyErrors: false,
    // JSON has no dates, sets and bytes.
    resolveKnownTags: false,
    // Lower levels would print warnings to standard error.
    logLevel: 'error',
  });
  const found = [...document.errors, ...document.warnings].map(({ pos, code, message }) => ({
    line: lineAt(pos[0]),
    message: `not valid YAML: ${code === 'MULTIPLE_DOCS' ? 'a file must have exactly one document' : plainMessage(message)}`,
  }));
  // Further problems of a line mostly follow from the first.
  const faults = found.filter(({ line }, index) => found.findIndex((other) => other.line === line) === index);
  const problems = faults.length > 0 ? faults : nodeProblems(document, lineAt);
  if (problems.length > 0) return { ok: false, problems };
  prepare?.(document);
  try {
    return {
      ok: true,
      source: { value: document.toJS() as unknown, lineOf: (path) => lineAt(offsetOf(document, path)) },
    };
  } catch (error) {
    // Aliases are resolved only here: there may be too many, or one that cannot be merged.
    const message = error instanceof Error ? plainMessage(error.message) : String(error);
    return { ok: false, problems: [{ line: 1, message: `not valid YAML: ${message}` }] };
  }
}

/** Returns a `prepare` that keeps numbers of fields as the text in the file, since a parsed number may be rounded. */
export function keepDecimals(paths: readonly (readonly string[])[]): (document: Document) => void {
  return (document) => {
    for (const path of paths.flatMap((one) => itemPaths(document, one))) {
      const node = nodeAt(document, path);
      if (isScalar(node) && typeof node.value === 'number' && node.source !== undefined) node.value = node.source;
    }
  };
}

/** Path element of `keepDecimals` that matches every item of a list. */
export const eachItem = '*';

function itemPaths(document: Document, path: readonly string[]): readonly (readonly PropertyKey[])[] {
  const at = path.indexOf(eachItem);
  if (at === -1) return [path];
  const list = nodeAt(document, path.slice(0, at));
  if (!isSeq(list)) return [];
  return list.items.map((_, index) => [...path.slice(0, at), index, ...path.slice(at + 1)]);
}

/** Maximum nesting: parsed YAML is traversed by recursive functions. */
const levelsMax = 100;

function depthProblem(text: string): YamlProblem | null {
  const parser = new Parser();
  for (const lexeme of new Lexer().lex(text)) {
    // The tokens are discarded: only the depth of the parser's stack matters.
    for (const _ of parser.next(lexeme));
    if (parser.stack.length <= levelsMax) continue;
    const line = text.slice(0, parser.offset).split('\n').length;
    return { line, message: `not valid YAML: more than ${levelsMax} nested levels` };
  }
  return null;
}

/** Returns the parser's message without the text that it quotes. */
function plainMessage(message: string): string {
  const tag = /^Unresolved tag: (?:tag:yaml\.org,2002:(\w+))?/.exec(message);
  if (tag?.[1] !== undefined) return `the tag !!${tag[1]} is not supported`;
  if (tag !== null) return 'this tag is not supported; put a text that starts with ! in quotes';
  return message.replace(/(YAML (?:stream|document)|extra characters|escape sequence):? .*$/s, '$1');
}

/** Reports aliases without an anchor or inside their own anchor, and keys that are not texts. */
function nodeProblems(document: Document, lineAt: (offset: number) => number): YamlProblem[] {
  const anchors = new Map<string, unknown>();
  const problems: YamlProblem[] = [];
  const add = (node: unknown, message: string): void => {
    problems.push({ line: lineAt(isNode(node) ? (node.range?.[0] ?? 0) : 0), message: `not valid YAML: ${message}` });
  };
  visit(document, {
    Value(_, node) {
      if (node.anchor !== undefined) anchors.set(node.anchor, node);
    },
    Alias(_, node, path) {
      const target = anchors.get(node.source);
      if (target === undefined)
        add(node, 'no anchor of this name precedes this alias; put a text that starts with * in quotes');
      else if (path.some((outer) => outer === target)) add(node, 'this alias is inside its own anchor');
    },
    Pair(_, { key }) {
      const target = isAlias(key) ? anchors.get(key.source) : key;
      if (isCollection(target)) add(key, 'a list or a map cannot be a key');
    },
  });
  return problems;
}

function nodeAt(document: Document, path: readonly PropertyKey[]): unknown {
  return path.length === 0 ? document.contents : document.getIn(path, true);
}

/** Returns the offset of a map field's key or a list's item, or of the nearest existing parent. */
function offsetOf(document: Document, path: readonly PropertyKey[]): number {
  if (path.length === 0) return isNode(document.contents) ? (document.contents.range?.[0] ?? 0) : 0;
  const parentPath = path.slice(0, -1);
  const last = path[path.length - 1];
  const parent = nodeAt(document, parentPath);
  if (isMap(parent)) {
    const pair = parent.items.find((item) => isScalar(item.key) && String(item.key.value) === String(last));
    if (pair !== undefined && isScalar(pair.key) && pair.key.range) return pair.key.range[0];
  }
  const node = nodeAt(document, path);
  if (isNode(node) && node.range) return node.range[0];
  return offsetOf(document, parentPath);
}
