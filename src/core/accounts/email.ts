/**
 * What two spellings of one address have in common: compatibility forms and capitals are the same
 * (https://unicode.org/reports/tr15/, NFKC). Mailboxes that differ in capitals alone are nobody's habit.
 */
export function emailKeyOf(email: string): string {
  // Postgres has no U+0000; no address has this other one either, so that nobody is found by it.
  return email.normalize('NFKC').toLowerCase().normalize('NFKC').replaceAll('\0', '\u0001');
}

const lengthMax = 254;

/** What is wrong with an address, as it goes on after the field's name; null where nothing is. */
export function emailProblem(email: string): string | null {
  if (!email.isWellFormed()) return 'must be well-formed Unicode';
  const key = emailKeyOf(email);
  if (Math.max(email.length, key.length) > lengthMax) return `must have at most ${lengthMax} characters`;
  if (/[\s\p{C}\p{Z}]/u.test(email) || /[\s\p{C}\p{Z}]/u.test(key)) {
    return 'must not contain spaces or control characters';
  }
  const [local = '', domain = '', ...more] = key.split('@');
  // RFC 5322, atext and dots: quoted names and comments are valid, and nobody has such an address.
  const isLocal = /^[\p{L}\p{M}\p{N}!#$%&'*+/=?^_`{|}~.-]+$/u.test(local);
  const isDomain = /^[\p{L}\p{M}\p{N}-]+(?:\.[\p{L}\p{M}\p{N}-]+)+$/u.test(domain);
  const isAddress = isLocal && isDomain && more.length === 0;
  return isAddress ? null : 'must be an address such as ada@example.com';
}
