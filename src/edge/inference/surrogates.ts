/** Message about a text with half of a surrogate pair, to follow the text's name. */
export const halfPair = 'contains half of a surrogate pair, which is not a valid character.';

/** Matches the escape of a surrogate, or of a whole pair. */
const surrogate = /\\u[dD](?:[89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|([89a-fA-F][\da-fA-F]{2}))/g;
const escapeChars = 6;

/** Finds the first escape in a JSON text that is half of a surrogate pair: its offset, or -1. */
export function findHalf(text: string): number {
  surrogate.lastIndex = 0;
  for (let found = surrogate.exec(text); found !== null; found = surrogate.exec(text)) {
    let slashes = 0;
    while (text.charAt(found.index - 1 - slashes) === '\\') slashes += 1;
    // After an escaped backslash these are plain characters, and the next escape may be half of a pair.
    if (slashes % 2 === 1) surrogate.lastIndex = found.index + escapeChars;
    else if (found[1] !== undefined) return found.index;
  }
  return -1;
}
