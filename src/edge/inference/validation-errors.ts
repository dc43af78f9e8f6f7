import type { SentRequest } from './sent-request.ts';

/**
 * What vLLM's validator says of a body: a list of mistakes, of which only the names of fields, kinds of mistakes, bounds
 * and the words that vLLM allows are read. Where a body may have several forms, it lists the mistakes in each of them.
 */

export interface ValidationProblem {
  /** As `tools[0].function.name`. */
  readonly param: string;
  /** What is wrong with it, to follow its name. */
  readonly says: string;
  readonly isMissing: boolean;
}

interface Entry {
  readonly type: string;
  readonly text: string;
  readonly path: readonly string[];
}

const entryPattern =
  /\{'type': '(\w{1,64})', 'loc': \('body'((?:, (?:'[^'\n]{0,200}'|\d{1,9})){0,24}),?\), 'msg': (?:'((?:[^'\\\n]|\\.){0,400})'|"((?:[^"\\\n]|\\.){0,400})")/g;
const entriesMax = 200;

/** Pydantic's names for the forms of a value, which stand between those of fields. */
const formNames = new Set(['str', 'int', 'float', 'bool', 'bytes', 'dict', 'list', 'tuple', 'none', 'constrained-str']);
const fieldPattern = /^(?:[a-z_][a-z0-9_]{0,63}|\d{1,9})$/;

function readEntries(message: string): Entry[] {
  return [...message.matchAll(entryPattern)].slice(0, entriesMax).map(([, type = '', loc = '', plain, quoted]) => ({
    type,
    text: plain ?? quoted ?? '',
    path: [...loc.matchAll(/, (?:'([^']*)'|(\d+))/g)]
      .map(([, name, index]) => name ?? index ?? '')
      .filter((name) => fieldPattern.test(name) && !formNames.has(name)),
  }));
}

/** @returns null for a message that is no validator's, or names no field */
export function validationProblem(message: string, sent: SentRequest): ValidationProblem | null {
  const entries = readEntries(message).filter(({ type, path }) => path.length > 0 && type !== 'json_invalid');
  const entry = meant(entries, sent);
  if (entry === undefined) return null;
  const [first = ''] = entry.path;
  // Parts of messages are read later than the rest, and their places counted from themselves.
  const param = /^\d/.test(first) ? sent.inputKey : paramOf(entry.path);
  if (param === null) return null;
  const isMissing = entry.type === 'missing' && param === paramOf(entry.path);
  return { param, says: isMissing ? 'is missing' : saysOf(entry, param, entries), isMissing };
}

/** Of what was sent the first mistake; else the first field that is missing, by the endpoint's own name for it. */
function meant(entries: readonly Entry[], sent: SentRequest): Entry | undefined {
  const ofSent = entries.find(({ type, path }) => sent.has(path[0] ?? '') && (type !== 'missing' || path.length > 1));
  if (ofSent !== undefined) return insideOf(ofSent, entries) ?? ofSent;
  const missing = entries.filter(({ type, path: [name = ''] }) => type === 'missing' && !sent.has(name));
  const isPartner = (key: string): boolean => key.endsWith('_2') && sent.has(key.replace(/2$/, '1'));
  const names = sent.inputKeys.toSorted((a, b) => Number(isPartner(b)) - Number(isPartner(a)));
  const named = names.map((key) => missing.find(({ path }) => path.length === 1 && path[0] === key));
  return named.find((entry) => entry !== undefined) ?? missing[0] ?? entries[0];
}

/**
 * A mistake inside of a value that might have been a text as well, and was the list or object that it may also be: what
 * is wrong is in there. Null where it is of no kind that it may be.
 */
function insideOf(entry: Entry, entries: readonly Entry[]): Entry | null {
  if (entry.type !== 'string_type') return null;
  const param = paramOf(entry.path);
  const others = entries.filter((other) => other !== entry);
  if (others.some(({ path }) => paramOf(path) === param)) return null;
  const inside = others.filter(({ path }) => entry.path.every((name, index) => path[index] === name));
  const isOneForm = inside.length === 1 || inside.every(({ type }) => type === 'literal_error');
  return isOneForm ? (inside[0] ?? null) : null;
}

function paramOf(path: readonly string[]): string {
  return path.reduce((text, name) => {
    if (/^\d/.test(name)) return `${text}[${name}]`;
    return text === '' ? name : `${text}.${name}`;
  }, '');
}

/** By the kinds of Pydantic's errors: https://docs.pydantic.dev/latest/errors/validation_errors/ */
const kinds: readonly (readonly [RegExp, string])[] = [
  [/^bool_/, 'must be true or false'],
  [/^int_/, 'must be a whole number'],
  [/^(?:float|decimal|finite)_/, 'must be a number'],
  [/^string_(?:type|sub_type)/, 'must be a string'],
  [/^(?:list|tuple|set|iterable)_type/, 'must be a list'],
  [/^(?:dict|model|mapping|dataclass)_/, 'must be an object'],
  [/^(?:too_short|string_too_short)/, 'is too short'],
  [/^(?:too_long|string_too_long)/, 'is too long'],
];

const bounds: readonly (readonly [RegExp, string])[] = [
  [/^Input should be greater than or equal to (-?\d+(?:\.\d+)?)$/, 'must be at least'],
  [/^Input should be less than or equal to (-?\d+(?:\.\d+)?)$/, 'may be at most'],
  [/^Input should be greater than (-?\d+(?:\.\d+)?)$/, 'must be above'],
  [/^Input should be less than (-?\d+(?:\.\d+)?)$/, 'must be below'],
];
const wordsPattern = /^Input should be ((?:'[\w-]{1,40}'(?:, | or )?){1,20})$/;
const notValid = 'is not valid for this model';

function saysOf({ text, path }: Entry, param: string, entries: readonly Entry[]): string {
  if (param !== paramOf(path)) return notValid;
  for (const [pattern, words] of bounds) {
    const [, bound] = pattern.exec(text) ?? [];
    if (bound !== undefined) return `${words} ${bound}`;
  }
  const [, words] = wordsPattern.exec(text) ?? [];
  if (words !== undefined) return `must be ${words.replaceAll("'", '"')}`;
  // A field may have values of several kinds, and each of them was tried.
  const tried = entries.filter((entry) => paramOf(entry.path) === param);
  const forms = new Set(tried.flatMap(({ type }) => kinds.find(([pattern]) => pattern.test(type))?.[1] ?? []));
  const [first = notValid, ...others] = forms;
  return [first, ...others.map((form) => form.replace(/^must be /, ''))].join(' or ');
}
