import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

interface Language {
  readonly dictionary: { readonly 'passwords-common': readonly string[] };
}

let known: ReadonlySet<string> | null = null;

/** Returns true if a password is among the 49,000 most used ones; loads the list at the first call. */
export function isCommonPassword(password: string): boolean {
  known ??= new Set((require('@zxcvbn-ts/language-common') as Language).dictionary['passwords-common']);
  return known.has(password.toLowerCase());
}
