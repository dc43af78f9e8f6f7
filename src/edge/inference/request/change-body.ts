import { type JsonMember, latin1Json, type Splice, spliceText } from '#base/json/json.ts';
import type { RequestChanges } from '#core/catalog/catalog.ts';
import { isNull } from '#edge/inference/json-member.ts';
import type { RequestForm } from './request-form.ts';

/** The field of engine files that stands for the output limit of any route. */
const limitField = 'max_tokens';

interface Body {
  /** Body as latin1. */
  readonly text: string;
  readonly members: ReadonlyMap<string, JsonMember>;
}

/**
 * Returns a body with the defaults and overrides of an engine file, before anything is read from the body. Fields that
 * the route does not have are left out. Everything else keeps its bytes.
 */
export function changeBody(
  { text, members }: Body,
  form: RequestForm,
  { defaults, overrides }: RequestChanges,
): string {
  const isSent = (key: string): boolean => {
    const member = members.get(key);
    return member !== undefined && !isNull(text, member);
  };
  const wanted = new Map<string, unknown>();
  for (const [field, value] of Object.entries(defaults)) {
    const keys = keysOf(field, form);
    if (keys.some(isSent)) continue;
    for (const [at, key] of keys.entries()) wanted.set(key, at === 0 ? value : null);
  }
  for (const [field, value] of Object.entries(overrides)) {
    for (const [at, key] of keysOf(field, form).entries()) wanted.set(key, at === 0 ? value : null);
  }
  return wanted.size === 0 ? text : withMembers({ text, members }, wanted);
}

/** Returns the names that a field has on a route, the one to set first; none if the route does not have it. */
function keysOf(field: string, { limitKeys, fields }: RequestForm): readonly string[] {
  if (field === limitField) return limitKeys;
  return Object.hasOwn(fields, field) ? [field] : [];
}

/** Sets members, each in its place or at the beginning, and cuts out those whose value is null. */
function withMembers({ text, members }: Body, wanted: ReadonlyMap<string, unknown>): string {
  const all = [...members.values()];
  const [first] = all;
  const isCut = ({ key }: JsonMember): boolean => wanted.get(key) === null;
  const last = all.findLast((member) => !isCut(member));
  if (first === undefined || last === undefined) return text;
  const added = [...wanted].filter(([key, value]) => value !== null && !members.has(key));
  const begin = added.map(([key, value]) => `"${key}":${latin1Json(value)},`).join('');
  const splices: Splice[] = [{ start: first.keyStart, end: first.keyStart, text: begin }];
  for (const [at, member] of all.slice(0, all.indexOf(last) + 1).entries()) {
    const next = all[at + 1];
    if (isCut(member) && next !== undefined) splices.push({ start: member.keyStart, end: next.keyStart, text: '' });
    else if (wanted.has(member.key))
      splices.push({ start: member.valueStart, end: member.valueEnd, text: latin1Json(wanted.get(member.key)) });
  }
  // Members after the last one that stays go with the comma before them.
  splices.push({ start: last.valueEnd, end: all.at(-1)?.valueEnd ?? last.valueEnd, text: '' });
  return spliceText(text, splices);
}
