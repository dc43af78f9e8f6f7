import { latin1Json, memberCut, scanDocument, skipString, skipValue, type Splice } from '#base/json/json.ts';

/** Position of the top-level `usage` of a JSON text, or its absence, or `broken` for a text that is not an object. */
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
 * True if the object that contains `at` ends exactly at `end`, provided that it is the outermost object: then the text
 * before `at` was one of its members. Only the following text is read, which in vLLM's frames is a few characters.
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
 * quotes would be escaped); reading the rest proves that it is a member of the outermost object. Any other layout is
 * scanned whole.
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

/** The model name that clients know, if its engine uses another one; as JSON, in latin1. */
export type PublicName = string & { readonly publicName: never };

export function publicNameOf(name: string): PublicName {
  return latin1Json(name) as PublicName;
}

/**
 * Returns the splices that put the public name into an object's top-level `model`.
 * @param text latin1 text that holds the object from `start` to `end`
 * @returns none if the name is there already, or if there is no `model`; null if the text is not an object
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
