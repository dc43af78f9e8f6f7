/**
 * Returns the common form of all spellings of one address: compatibility forms and capitals are normalized
 * (https://unicode.org/reports/tr15/, NFKC). In practice no two mailboxes differ only in capitals.
 */
export function emailKeyOf(email: string): string {
  // PostgreSQL cannot store U+0000. Its replacement occurs in no address either, so that it finds nobody.
  return email.normalize('NFKC').toLowerCase().normalize('NFKC').replaceAll('\0', '\u0001');
}

const lengthMax = 254;

/** Returns the problem of an address, to follow the field's name in a message; null if the address is valid. */
export function emailProblem(email: string): string | null {
  if (!email.isWellFormed()) return 'must be well-formed Unicode';
  const key = emailKeyOf(email);
  if (Math.max(email.length, key.length) > lengthMax) return `must have at most ${lengthMax} characters`;
  if (/[\s\p{C}\p{Z}]/u.test(email) || /[\s\p{C}\p{Z}]/u.test(key)) {
    return 'must not contain spaces or control characters';
  }
  const [local = '', domain = '', ...more] = key.split('@');
  // RFC 5322, atext and dots: quoted names and comments are valid too, but nobody has such an address.
  const isLocal = /^[\p{L}\p{M}\p{N}!#$%&'*+/=?^_`{|}~.-]+$/u.test(local);
  const isDomain = /^[\p{L}\p{M}\p{N}-]+(?:\.[\p{L}\p{M}\p{N}-]+)+$/u.test(domain);
  const isAddress = isLocal && isDomain && more.length === 0;
  return isAddress ? null : 'must be an address such as ada@example.com';
}
