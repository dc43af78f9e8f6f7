/** Shortest abbreviation accepted of a flag: the dashes and two letters are the start of many flags. */
const shortenedCharsMin = 5;

/**
 * Finds one of vLLM's flags in a command, written `--a-flag value`, `--a-flag=value`, with underscores, or abbreviated:
 * Python's argparse accepts any prefix that is unique among its flags and rejects others.
 * @returns the index of the argument and its value ('' for a switch at the end), or null
 */
export function findFlag(command: readonly string[], flag: string): { index: number; value: string } | null {
  for (const [index, argument] of command.entries()) {
    if (!argument.startsWith('--')) continue;
    const equals = argument.indexOf('=');
    const name = (equals === -1 ? argument : argument.slice(0, equals)).replaceAll('_', '-');
    if (name !== flag && (name.length < shortenedCharsMin || !flag.startsWith(name))) continue;
    return { index, value: equals === -1 ? (command[index + 1] ?? '') : argument.slice(equals + 1) };
  }
  return null;
}
