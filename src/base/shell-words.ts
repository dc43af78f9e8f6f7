/**
 * Splits a command as a POSIX shell does into words, without running or expanding anything.
 * https://pubs.opengroup.org/onlinepubs/9699919799/utilities/V3_chap02.html#tag_18_02
 * @returns null where a quote is left open
 */
export function splitWords(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let index = 0;
  while (index < text.length) {
    const char = text.charAt(index);
    if (char === "'") {
      const end = text.indexOf("'", index + 1);
      if (end === -1) return null;
      word = (word ?? '') + text.slice(index + 1, end);
      index = end + 1;
    } else if (char === '"') {
      const quoted = readQuoted(text, index + 1);
      if (quoted === null) return null;
      word = (word ?? '') + quoted.text;
      index = quoted.end;
    } else if (char === '\\') {
      // A line that ends in a backslash goes on in the next.
      if (text.charAt(index + 1) !== '\n') word = (word ?? '') + text.charAt(index + 1);
      index += 2;
    } else if (/\s/.test(char)) {
      if (word !== null) words.push(word);
      word = null;
      index += 1;
    } else {
      word = (word ?? '') + char;
      index += 1;
    }
  }
  if (word !== null) words.push(word);
  return words;
}

/** The text between double quotes, where a backslash escapes only a few characters. */
function readQuoted(text: string, start: number): { text: string; end: number } | null {
  let read = '';
  for (let index = start; index < text.length; index += 1) {
    const char = text.charAt(index);
    if (char === '"') return { text: read, end: index + 1 };
    const next = text.charAt(index + 1);
    if (char === '\\' && /["\\$`\n]/.test(next)) {
      if (next !== '\n') read += next;
      index += 1;
    } else read += char;
  }
  return null;
}
