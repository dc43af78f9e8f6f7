/** Shortest abbreviation accepted of a long name: the dashes and two letters are the start of many flags. */
const shortenedCharsMin = 5;

/**
 * Finds a flag of vLLM in a command, as Python's argparse reads it: `--a-flag value`, `--a-flag=value`, with
 * underscores, abbreviated, or in a short form such as `-n 2`, `-n=2` and `-n2`. The last occurrence applies. An
 * abbreviation that fits several flags is found for each of them; argparse rejects it.
 * @param names the long name first, then short forms
 * @returns the index of the argument and its value ('' for a switch at the end), or null
 */
export function findFlag(command: readonly string[], ...names: readonly string[]): FoundFlag | null {
  const index = command.findLastIndex((word) => names.some((name) => isNamed(word, name)));
  const word = command[index];
  if (word === undefined) return null;
  return { index, value: joinedValue(word) ?? command[index + 1] ?? '' };
}

export interface FoundFlag {
  readonly index: number;
  readonly value: string;
}

/** True if a word is the flag, with or without a value in the same word. */
function isNamed(word: string, name: string): boolean {
  const given = (word.split('=', 1)[0] ?? '').replaceAll('_', '-');
  if (given === name) return true;
  if (name.startsWith('--')) return given.length >= shortenedCharsMin && name.startsWith(given);
  if (word.startsWith('--')) return false;
  // `-n2` is `-n 2`, and `-t 2` is `-tp 2`.
  return name.length === 2 ? word.startsWith(name) : given.length === 2 && name.startsWith(given);
}

/** Returns the value in the word of a flag: after `=`, or after a short form of one letter; null if there is none. */
function joinedValue(word: string): string | null {
  const equals = word.indexOf('=');
  if (equals !== -1) return word.slice(equals + 1);
  return /^-[a-z]\d/.test(word) ? word.slice(2) : null;
}
