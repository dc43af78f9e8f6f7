import { looksSecret } from '#core/catalog/catalog.ts';

const charsMax = 128;

/**
 * A name or a path that a client made up, as it may stand in a log: cut, with what is no plain ASCII escaped as in a
 * URL, and with nothing of it where it holds a key, which people paste in the wrong place.
 */
export function clientsWord(text: string): string;
export function clientsWord(text: string | null): string | null;
export function clientsWord(text: string | null): string | null {
  if (text === null) return null;
  const cut = text.length > charsMax ? `${text.slice(0, charsMax)}…` : text;
  const shown = cut.split('/').map((part) => (looksSecret(part) ? '***' : part.replaceAll(unsafe, escaped)));
  return shown.join('/');
}

/** All but printable ASCII without quotes and backslash; a lone half of a pair too. */
const unsafe = /[^\x21\x23-\x26\x28-\x5b\x5d-\x7e…]/gu;

function escaped(character: string): string {
  return encodeURIComponent(character.toWellFormed());
}
