import { parseArgs } from 'node:util';
import { didYouMean } from './suggest.ts';
import { type Command, type Flag, globalOptions } from './command.ts';
import { UsageError } from './errors.ts';

/** Parses the typed words against the known commands. */

const nameWordsMax = 2;
const globalWords = new Set(['--json', '--wide', '--help', '-h']);

/** Moves options that every command has behind the command's name, where they may stand before or within the name. */
export function nameFirst(args: readonly string[]): readonly string[] {
  let words = 0;
  const next = args.findIndex((word) => {
    if (globalWords.has(word)) return false;
    words += 1;
    return words > nameWordsMax || word.startsWith('-');
  });
  const end = next === -1 ? args.length : next;
  const [head, rest] = [args.slice(0, end), args.slice(end)];
  const isGlobal = (word: string): boolean => globalWords.has(word);
  return [...head.filter((word) => !isGlobal(word)), ...head.filter(isGlobal), ...rest];
}

/** Returns the group that is typed without a command; null otherwise. @param args as `nameFirst` orders them */
export function bareGroup(all: readonly Command[], args: readonly string[]): string | null {
  const [group = '', ...rest] = args;
  if (!rest.every((word) => globalWords.has(word)) || all.some(({ name }) => name === group)) return null;
  return all.some(({ name }) => name.startsWith(`${group} `)) ? group : null;
}

/** Finds the command. The longest name wins: `wallet ledger` before `wallet`. @throws UsageError */
export function findCommand(
  all: readonly Command[],
  args: readonly string[],
): { readonly command: Command; readonly rest: readonly string[] } {
  const matching = all.filter(({ name }) => name.split(' ').every((word, index) => args[index] === word));
  const [command] = matching.toSorted((a, b) => b.name.length - a.name.length);
  const [group = '', name] = args;
  // Accepts `ls` after a command that takes no words: `models ls` lists the models.
  const alone = all.find((one) => one.name === group && one.words.max === 0);
  if (alone !== undefined && name === 'ls') return { command: alone, rest: args.slice(2) };
  if (command !== undefined) return { command, rest: args.slice(command.name.split(' ').length) };
  const siblings = all.filter((candidate) => candidate.name.startsWith(`${group} `));
  if (siblings.length === 0) {
    const first = [...new Set(all.map((one) => one.name.split(' ')[0] ?? ''))];
    const meant = didYouMean(group, first, 'headgate ');
    throw new UsageError(`unknown command ${JSON.stringify(group)}${meant}; "headgate help" lists all commands`);
  }
  const names = siblings.map((sibling) => sibling.name.slice(group.length + 1));
  const isOpen = name === undefined || name.startsWith('-');
  const known = names.join(', ');
  if (isOpen) throw new UsageError(`"headgate ${group}" needs a subcommand, one of ${known}`);
  const meant = didYouMean(name, names, `headgate ${group} `);
  throw new UsageError(`"headgate ${group}" has no subcommand ${JSON.stringify(name)}${meant}; use one of ${known}`);
}

export interface ParsedWords {
  readonly values: Readonly<Record<string, Flag | undefined>>;
  readonly positionals: readonly string[];
  /** The last positionals: those behind `--`. */
  readonly behindDashes: readonly string[];
}

/** @throws UsageError */
export function parseWords(command: Command, args: readonly string[]): ParsedWords {
  const options = { ...globalOptions, ...command.options };
  let parsed;
  try {
    parsed = parseArgs({ args: markAmounts(args), options, allowPositionals: true, tokens: true });
  } catch (error) {
    const [sentence = ''] = (error instanceof Error ? error.message : String(error)).split(/\.(?: |$)/, 1);
    const [, unknown] = /^Unknown option '--([^']+)'/.exec(sentence) ?? [];
    const hint = unknown === undefined ? undefined : new Map(Object.entries(command.refused ?? {})).get(unknown);
    if (hint !== undefined) throw new UsageError(`${sentence}: ${hint}`);
    const meant = unknown === undefined ? '' : didYouMean(unknown, Object.keys(options), '--');
    throw new UsageError(`${sentence}${meant}: headgate ${command.name} ${command.usage}`);
  }
  const { tokens } = parsed;
  const values: ParsedWords['values'] = Object.fromEntries(
    Object.entries(parsed.values).map(([name, value]) => [name, unmarkedFlag(value)]),
  );
  const positionals = parsed.positionals.map(unmarked);
  const end = tokens.findIndex(({ kind }) => kind === 'option-terminator');
  const behindDashes = end === -1 ? [] : positionals.slice(positionals.length - (tokens.length - end - 1));
  if (values['help'] === true) return { values, positionals, behindDashes };
  checkCount(command, positionals.length);
  const [first] = positionals;
  if (first !== undefined) checkChoice(JSON.stringify(first), first, command.choices);
  for (const [name, { choices }] of Object.entries(command.options)) {
    for (const value of [values[name] ?? []].flat()) checkChoice(`--${name}`, String(value), choices);
  }
  return { values, positionals, behindDashes };
}

/** A character that no argument of a process can contain. */
const amountMark = '\0';

/**
 * Marks amounts for the parser: `-2.50` is an amount and not an option, since no option begins with a digit. The mark
 * keeps an amount where it was typed: "what is -3 + 5" is a sentence.
 */
function markAmounts(args: readonly string[]): string[] {
  const end = args.indexOf('--');
  return args.map((word, index) =>
    (end === -1 || index < end) && /^-\d+(\.\d+)?$/.test(word) ? amountMark + word : word,
  );
}

const unmarked = (word: string): string => (word.startsWith(amountMark) ? word.slice(amountMark.length) : word);

function unmarkedFlag(value: Flag | undefined): Flag | undefined {
  if (Array.isArray(value)) return value.map((one) => (typeof one === 'string' ? unmarked(one) : one));
  return typeof value === 'string' ? unmarked(value) : value;
}

function checkCount({ name, usage, words: { min, max } }: Command, count: number): void {
  if (count >= min && count <= max) return;
  throw new UsageError(`${count < min ? 'an argument is missing' : 'too many arguments'}: headgate ${name} ${usage}`);
}

function checkChoice(what: string, value: string, choices: readonly string[] | undefined): void {
  if (choices === undefined || choices.includes(value)) return;
  throw new UsageError(`${what} must be one of ${choices.join(', ')}${didYouMean(value, choices)}`);
}
