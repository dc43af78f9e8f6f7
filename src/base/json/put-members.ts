import { type JsonMember, scanDocument, type Splice, spliceText } from './scan.ts';

/** Members of an object by name, each with its JSON as latin1. */
export type MemberValues = readonly (readonly [key: string, json: string])[];

/**
 * Returns the splices that set members of an object, each in its place or at the beginning.
 * @param members all members of the object
 * @param offset added to the offsets of `members`
 */
export function memberSplices(members: readonly JsonMember[], values: MemberValues, offset = 0): Splice[] {
  const splices: Splice[] = [];
  let added = '';
  for (const [key, json] of values) {
    const member = members.find((one) => one.key === key);
    if (member === undefined) added += `"${key}":${json},`;
    else splices.push({ start: offset + member.valueStart, end: offset + member.valueEnd, text: json });
  }
  const [first] = members;
  if (added !== '' && first !== undefined) {
    splices.push({ start: offset + first.keyStart, end: offset + first.keyStart, text: added });
  }
  return splices;
}

/** Sets members of a JSON object. Any other text, and an object without members, is returned as it is. */
export function putMembers(text: string, values: MemberValues): string {
  const scan = scanDocument(text);
  return scan.ok ? spliceText(text, memberSplices(scan.members, values)) : text;
}
