/** Handles keys of another program's configuration: each key is carried over, or listed with the reason why not. */

/** By key: null if the key is carried over or handled elsewhere, otherwise the reason why it is not. */
export type KeyTable = Readonly<Record<string, string | null>>;

const namesMax = 30;

/**
 * Lists every key that is not carried over, unknown keys included. Values are never repeated: they may be secrets.
 * @param value the configuration's value; anything but a map has no keys
 */
export function noteKeys(value: unknown, table: KeyTable, add: (text: string) => void): void {
  const unknown: string[] = [];
  for (const [key, member] of members(value)) {
    const reason = Object.hasOwn(table, key) ? table[key] : undefined;
    if (reason === undefined) unknown.push(keyName(key) + namesIn(member));
    else if (reason !== null) add(`${key}${namesIn(member)}: not imported; ${reason}`);
  }
  if (unknown.length > 0) add(`not imported, because Headgate has no such setting: ${unknown.join(', ')}`);
}

function members(value: unknown): readonly [string, unknown][] {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
}

/**
 * Returns the name of a key without its value: without a space after the colon, YAML reads a field and its value as one
 * key.
 */
function keyName(key: string): string {
  return key.replace(/[:=\p{Cc}].*$/su, '…');
}

/** Returns ` (a, b)`: the keys of a map, or the names of the maps in a list. */
function namesIn(value: unknown): string {
  const names = Array.isArray(value) ? value.flatMap(nameOf) : members(value).map(([key]) => keyName(key));
  if (names.length === 0) return '';
  const shown = names.slice(0, namesMax).join(', ');
  return ` (${shown}${names.length > namesMax ? `, and ${names.length - namesMax} more` : ''})`;
}

/**
 * Returns the name of a map, as in `guardrail_name: a`, `credential_name: b`, `name: c`; otherwise its first key, as
 * for `[{model: [other]}]`.
 */
function nameOf(item: unknown): string[] {
  const all = members(item);
  const named = all.find(([key, text]) => /(?:^|_)(?:name|id)$/.test(key) && typeof text === 'string');
  const [first] = all;
  const name = named !== undefined ? String(named[1]) : first !== undefined ? keyName(first[0]) : undefined;
  return name === undefined ? [] : [name];
}
