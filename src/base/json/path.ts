import { forEachElement, scanObject } from './scan.ts';

/** A longer name is cut, and so is a path of more levels. */
const nameCharsMax = 64;
const levelsMax = 16;

/**
 * Names the innermost value of a JSON object that contains an offset, as `messages[0].content`; '' for the object
 * itself. An offset in a field's name belongs to the object of that field.
 */
export function pathAt(text: string, offset: number): string {
  let path = '';
  let at = 0;
  for (let level = 0; level < levelsMax; level += 1) {
    const inside = text.charAt(at) === '[' ? elementAt(text, at, offset) : memberAt(text, at, offset);
    if (inside === null) break;
    path += inside.name;
    at = inside.start;
  }
  return path.replace(/^\./, '');
}

interface Inside {
  readonly name: string;
  readonly start: number;
}

function elementAt(text: string, at: number, offset: number): Inside | null {
  let index = -1;
  let found: Inside | null = null;
  forEachElement(text, at, (start, end) => {
    index += 1;
    if (offset < start || offset >= end) return true;
    found = { name: `[${index}]`, start };
    return false;
  });
  return found;
}

function memberAt(text: string, at: number, offset: number): Inside | null {
  const scan = scanObject(text, at);
  const member = scan.ok
    ? scan.members.find(({ valueStart, valueEnd }) => offset >= valueStart && offset < valueEnd)
    : undefined;
  return member === undefined ? null : { name: `.${member.key.slice(0, nameCharsMax)}`, start: member.valueStart };
}
