import type { SentRequest } from './sent-request.ts';

/**
 * Parses the message of vLLM's validator about a body: a list of mistakes. Only the names of fields, kinds of mistakes,
 * bounds and allowed words are read. If a body may have several forms, vLLM lists the mistakes in each of them.
 */

export interface ValidationProblem {
  /** Path of the field, such as `tools[0].function.name`. */
  readonly param: string;
  /** Description of the fault, to follow the field's name. */
  readonly says: string;
  readonly isMissing: boolean;
}

interface Entry {
  readonly type: string;
  readonly text: string;
  /** All names and indexes from the body to the value, including the names of forms. */
  readonly steps: readonly string[];
  /** Only the names of fields, and indexes in lists. */
  readonly path: readonly string[];
}

/** The path of a mistake: a tuple until vLLM 0.31, and since then a text such as `body.messages.0.role`. */
const locPattern = String.raw`(?:\('body'((?:, (?:'[^'\n]{0,4000}'|"[^"\n]{0,4000}"|\d{1,9})){0,24}),?\)|'body((?:\.[^'\n.]{1,1000}){0,24})')`;
const msgPattern = String.raw`(?:'((?:[^'\\\n]|\\.){0,400})'|"((?:[^"\\\n]|\\.){0,400})")`;
const entryPattern = new RegExp(String.raw`\{'type': '(\w{1,64})', 'loc': ${locPattern}, 'msg': ${msgPattern}`, 'g');
const stepPattern = /, (?:'([^']*)'|"([^"]*)"|(\d+))/g;
/**
 * Matches a mistake as Pydantic prints it for a list that is read item by item. The first index is one of that list.
 */
const printedPattern = /^(\d{1,9}(?:\.\w{1,64}){1,12})\n {2}([^\n]{1,400}?) \[type=(\w{1,64}),/gm;
const entriesMax = 1000;

/** Pydantic's names for the forms of a value, which stand between the names of fields. */
const formNames = new Set(['str', 'int', 'float', 'bool', 'bytes', 'dict', 'list', 'tuple', 'none', 'constrained-str']);
const fieldPattern = /^(?:[a-z_][a-z0-9_]{0,63}|\d{1,9})$/;

function readEntries(message: string): readonly Entry[] {
  const listed = [...message.matchAll(entryPattern)]
    .slice(0, entriesMax)
    .map(([, type = '', tuple = '', dotted, plain, quoted]) => {
      const inTuple = [...tuple.matchAll(stepPattern)].map(([, name, other, index]) => name ?? other ?? index ?? '');
      return entryOf(type, plain ?? quoted ?? '', dotted === undefined ? inTuple : dotted.split('.').slice(1));
    });
  if (listed.length > 0) return listed;
  const printed = [...message.matchAll(printedPattern)].slice(0, entriesMax);
  return printed.map(([, loc = '', text = '', type = '']) => entryOf(type, text, loc.split('.')));
}

function entryOf(type: string, text: string, steps: readonly string[]): Entry {
  return { type, text, steps, path: steps.filter((name) => fieldPattern.test(name) && !formNames.has(name)) };
}

/** @returns null for a message that is not the validator's, or names no field */
export function validationProblem(message: string, sent: SentRequest): ValidationProblem | null {
  const all = readEntries(message).filter(({ type, path }) => path.length > 0 && type !== 'json_invalid');
  const entries = ofMeantForms(all);
  const entry = meant(entries, sent);
  if (entry === undefined) return null;
  const isMissing = entry.type === 'missing';
  const says = isMissing ? 'is missing' : saysOf(entry, entries);
  const [first = '', ...rest] = entry.path;
  if (!/^\d/.test(first)) return { param: paramOf(entry.path), says, isMissing };
  // Lists in messages are validated later than the rest, with indexes that count from the list.
  const { inputKey } = sent;
  if (inputKey === null) return null;
  const item = rest.length === 0 ? 'has an item that' : `has an item whose "${paramOf(rest)}"`;
  return { param: inputKey, says: `${item} ${says}`, isMissing: false };
}

/** Matches names of forms, which are names of classes. */
const formPattern = /^[A-Z]\w*$/;
/** Members with which a value names its form. */
const signs = new Set(['role', 'type']);

/**
 * Removes the mistakes in all forms of a value, except for the intended form: the one whose sign the value has, and
 * that lacks least otherwise.
 */
function ofMeantForms(entries: readonly Entry[], depth = 0): readonly Entry[] {
  const groups = Map.groupBy(entries, ({ steps }) => steps[depth]);
  const forms = [...groups].flatMap(([name, group]) => (name !== undefined && formPattern.test(name) ? [group] : []));
  const best = forms.length > 1 ? bestForm(forms, depth + 1) : null;
  return [...groups.values()].flatMap((group) => {
    if (best !== null && forms.includes(group)) return group === best ? withAllSigns(best, forms, depth + 1) : [];
    return group[0]?.steps[depth] === undefined ? group : ofMeantForms(group, depth + 1);
  });
}

/** @param at index of a form's members in the steps */
function bestForm(forms: readonly (readonly Entry[])[], at: number): readonly Entry[] | null {
  const scored = forms.map((group) => {
    const failed = group.filter((entry) => isFailedSign(entry, at)).length;
    const missing = group.filter(({ type, steps }) => type === 'missing' && steps.length === at + 1).length;
    const members = new Set(group.map(({ steps }) => steps[at])).size;
    return { group, score: [failed, missing, members] as const };
  });
  scored.sort((a, b) => a.score.map((value, index) => value - (b.score[index] ?? 0)).find((way) => way !== 0) ?? 0);
  return scored[0]?.group ?? null;
}

const isFailedSign = ({ type, steps }: Entry, at: number): boolean =>
  type === 'literal_error' && steps.length === at + 1 && signs.has(steps[at] ?? '');

/**
 * Returns the mistakes in the best form. If the value's sign fits no form, the sign is the only mistake, and the
 * message lists the words of all forms.
 */
function withAllSigns(best: readonly Entry[], forms: readonly (readonly Entry[])[], at: number): readonly Entry[] {
  const wrong = best.find((entry) => isFailedSign(entry, at));
  if (wrong === undefined) return ofMeantForms(best, at);
  const same = forms.flat().filter((entry) => isFailedSign(entry, at) && entry.steps[at] === wrong.steps[at]);
  const words = [...new Set(same.flatMap(({ text }) => text.match(/'[\w-]{1,40}'/g) ?? []))];
  return [{ ...wrong, text: `Input should be ${words.join(', ').replace(/, (?='[^']*'$)/, ' or ')}` }];
}

/** Returns the first mistake in a sent field; else the first missing field, by the endpoint's own name for it. */
function meant(entries: readonly Entry[], sent: SentRequest): Entry | undefined {
  const ofSent = entries.find(({ type, path }) => sent.has(path[0] ?? '') && (type !== 'missing' || path.length > 1));
  if (ofSent !== undefined) return insideOf(ofSent, entries) ?? ofSent;
  const missing = entries.filter(({ type, path: [name = ''] }) => type === 'missing' && !sent.has(name));
  const isPartner = (key: string): boolean => key.endsWith('_2') && sent.has(key.replace(/2$/, '1'));
  const names = sent.inputKeys.toSorted((a, b) => Number(isPartner(b)) - Number(isPartner(a)));
  const named = names.map((key) => missing.find(({ path }) => path.length === 1 && path[0] === key));
  return named.find((entry) => entry !== undefined) ?? missing[0] ?? entries[0];
}

/** Returns the mistake inside a list or object that could also have been a text; null if there is none. */
function insideOf(entry: Entry, entries: readonly Entry[]): Entry | null {
  if (entry.type !== 'string_type' && entry.type !== 'literal_error') return null;
  const param = paramOf(entry.path);
  const others = entries.filter((other) => other !== entry);
  if (others.some(({ path }) => paramOf(path) === param)) return null;
  const inside = others.filter(({ path }) => entry.path.every((name, index) => path[index] === name));
  const [first] = inside;
  return first === undefined ? null : (insideOf(first, inside) ?? first);
}

function paramOf(path: readonly string[]): string {
  return path.reduce((text, name) => {
    if (/^\d/.test(name)) return `${text}[${name}]`;
    return text === '' ? name : `${text}.${name}`;
  }, '');
}

/** Descriptions by the kinds of Pydantic's errors: https://docs.pydantic.dev/latest/errors/validation_errors/ */
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
const wordsPattern = /^Input should be ((?:'[\w-]{1,40}'(?:, | or )?){1,40})$/;
const notValid = 'is not valid for this model';

function saysOf({ text, path }: Entry, entries: readonly Entry[]): string {
  const param = paramOf(path);
  for (const [pattern, words] of bounds) {
    const [, bound] = pattern.exec(text) ?? [];
    if (bound !== undefined) return `${words} ${bound}`;
  }
  const [, words] = wordsPattern.exec(text) ?? [];
  if (words !== undefined) return `must be ${words.replaceAll("'", '"')}`;
  // A field may have values of several kinds, and Pydantic tries each of them.
  const tried = entries.filter((entry) => paramOf(entry.path) === param);
  const forms = new Set(tried.flatMap(({ type }) => kinds.find(([pattern]) => pattern.test(type))?.[1] ?? []));
  const [first = notValid, ...others] = forms;
  return [first, ...others.map((form) => form.replace(/^must be /, ''))].join(' or ');
}
