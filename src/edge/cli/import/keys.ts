/** Keys of another program's configuration: each one is carried over, or named with the reason why it is not. */

/** By key: null where it is carried over or looked at elsewhere, else why it is not. */
export type KeyTable = Readonly<Record<string, string | null>>;

const namesMax = 30;

/**
 * Names every key that is not carried over, those that no table knows as well. Values are never repeated: they may be
 * secrets.
 * @param value what the configuration has there; anything but a map has no keys
 */
export function noteKeys(value: unknown, table: KeyTable, add: (text: string) => void): void {
  const unknown: string[] = [];
  for (const [key, member] of members(value)) {
    const reason = Object.hasOwn(table, key) ? table[key] : undefined;
    if (reason === undefined) unknown.push(keyName(key) + namesIn(member));
    else if (reason !== null) add(`${key}: ${reason}${namesIn(member)}`);
  }
  if (unknown.length > 0) add(`not carried over: ${unknown.join(', ')}`);
}

function members(value: unknown): readonly [string, unknown][] {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
}

/** Without a blank behind its colon, a field and its value are one key. */
function keyName(key: string): string {
  return key.replace(/[:=\p{Cc}].*$/su, '…');
}

/** ` (a, b)`: what a map holds, or what the maps of a list are called. */
function namesIn(value: unknown): string {
  const names = Array.isArray(value) ? value.flatMap(nameOf) : members(value).map(([key]) => keyName(key));
  if (names.length === 0) return '';
  const shown = names.slice(0, namesMax).join(', ');
  return ` (${shown}${names.length > namesMax ? `, and ${names.length - namesMax} more` : ''})`;
}

/** `guardrail_name: a`, `credential_name: b`, `name: c`; else the first key, as of `[{model: [other]}]`. */
function nameOf(item: unknown): string[] {
  const all = members(item);
  const named = all.find(([key, text]) => /(?:^|_)(?:name|id)$/.test(key) && typeof text === 'string');
  const [first] = all;
  const name = named !== undefined ? String(named[1]) : first !== undefined ? keyName(first[0]) : undefined;
  return name === undefined ? [] : [name];
}
