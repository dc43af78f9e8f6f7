import { memberCut, scanDocument, scanObject, skipString, skipValue, type Splice } from '#base/json-scan.ts';

/** Where the top-level `usage` of a JSON text stands, or that it has none, or that the text is no object. */
export type UsageMember =
  | {
      readonly kind: 'found';
      readonly cutStart: number;
      readonly cutEnd: number;
      readonly start: number;
      readonly end: number;
    }
  | { readonly kind: 'absent' }
  | { readonly kind: 'broken' };

const absent: UsageMember = { kind: 'absent' };
const broken: UsageMember = { kind: 'broken' };
const marker = ',"usage":{';
const modelMark = '"model"';

/**
 * Whether the object that `at` stands in ends exactly at `end`, when it is the outermost one: then what stood before
 * `at` was one of its members. Only what follows is walked, which in vLLM's frames is a few characters.
 */
function endsOutermost(text: string, at: number, end: number): boolean {
  let index = at;
  for (;;) {
    const code = text.charCodeAt(index);
    if (code === 0x7d) return index === end - 1;
    if (code !== 0x2c) return false;
    index = skipString(text, index + 1);
    if (index === -1 || text.charCodeAt(index) !== 0x3a) return false;
    index = skipValue(text, index + 1);
    if (index === -1) return false;
  }
}

/**
 * Finds the top-level `usage` of a compact JSON object. A raw `,"usage":{` can only be a member (inside a string its
 * quotes would be escaped); that it is one of the outermost object is proven by walking the rest. Any other layout
 * is scanned whole.
 * @param text latin1 text that holds the object from `start` to `end`
 */
export function findUsage(text: string, start: number, end: number): UsageMember {
  const comma = text.lastIndexOf(marker, end);
  if (comma > start) {
    const valueStart = comma + marker.length - 1;
    const valueEnd = skipValue(text, valueStart);
    if (valueEnd !== -1 && endsOutermost(text, valueEnd, end)) {
      return { kind: 'found', cutStart: comma, cutEnd: valueEnd, start: valueStart, end: valueEnd };
    }
  }
  const word = text.indexOf('"usage"', start);
  if (comma <= start && (word === -1 || word >= end) && !text.slice(start, end).includes('\\u')) {
    return text.charCodeAt(start) === 0x7b && text.charCodeAt(end - 1) === 0x7d ? absent : broken;
  }
  return scanUsage(text.slice(start, end), start);
}

function scanUsage(object: string, offset: number): UsageMember {
  const scan = scanDocument(object);
  if (!scan.ok) return broken;
  const usage = scan.members.find(({ key }) => key === 'usage');
  if (usage === undefined) return absent;
  const { start, end } = memberCut(usage, scan.members);
  return {
    kind: 'found',
    cutStart: offset + start,
    cutEnd: offset + end,
    start: offset + usage.valueStart,
    end: offset + usage.valueEnd,
  };
}

/** Puts `cost` into the usage object from `start` to `end`, in the place of one that the engine has put there. */
export function costSplice(
  text: string,
  range: { readonly start: number; readonly end: number },
  cost: string,
): Splice {
  const scan = scanObject(text, range.start);
  const own = scan.ok ? scan.members.find(({ key }) => key === 'cost') : undefined;
  if (own !== undefined) return { start: own.valueStart, end: own.valueEnd, text: cost };
  const isEmpty = text.slice(range.start + 1, range.end - 1).trim() === '';
  return { start: range.end - 1, end: range.end - 1, text: `${isEmpty ? '' : ','}"cost":${cost}` };
}

/** The name that clients know a model by, where its engine calls it otherwise; as JSON, in latin1. */
export type PublicName = string & { readonly publicName: never };

export function publicNameOf(name: string): PublicName {
  return Buffer.from(JSON.stringify(name), 'utf8').toString('latin1') as PublicName;
}

/**
 * Where the public name goes into an object's top-level `model`.
 * @param text latin1 text that holds the object from `start` to `end`
 * @returns none where the name stands there already, or nothing that could be called so; null for what is no object
 */
export function modelSplices(text: string, start: number, end: number, name: PublicName): Splice[] | null {
  const at = text.indexOf(modelMark, start);
  const isOnly = at !== -1 && text.indexOf(modelMark, at + 1) === -1;
  if (isOnly && text.startsWith(`:${name}`, at + modelMark.length)) return [];
  const scan = scanDocument(text.slice(start, end));
  if (!scan.ok) return null;
  const model = scan.members.find(({ key }) => key === 'model');
  return model === undefined ? [] : [{ start: start + model.valueStart, end: start + model.valueEnd, text: name }];
}
