import { parseArgs } from 'node:util';
import type { ClientConfig } from '#base/config.ts';
import { readVersion } from '#base/version.ts';
import { importCommands } from '#edge/cli/import/import.ts';
import { createApiClient } from './api-client.ts';
import { clusterCommands } from './clusters.ts';
import { type CliOutput, type Command, exitCodes } from './command.ts';
import { costsCommand } from './costs.ts';
import { engineCommands } from './engines.ts';
import { FailedError, UsageError } from './errors.ts';
import { holdCommands } from './holds.ts';
import { reconcileCommand } from './reconcile.ts';
import { stackCommands } from './stacks.ts';
import { validateCommand } from './validate.ts';

export { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
export { FailedError, UsageError } from './errors.ts';

/**
 * The commands of `headgate`. They go through the gateway's HTTP API, so that they can do nothing that the API cannot;
 * only what needs no gateway, checking and writing engine files, works on files; and what works on the database itself
 * is handed in by the program. A group of commands is a file that
 * exports a list of them, and one line here.
 */
const commands: readonly Command[] = [
  ...engineCommands,
  ...clusterCommands,
  costsCommand,
  ...holdCommands,
  ...stackCommands,
  reconcileCommand,
  validateCommand,
  ...importCommands,
];

const globalOptions = {
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

export interface CliRun extends CliOutput {
  /** Without the program's own name. */
  readonly args: readonly string[];
  readonly config: ClientConfig;
  /** Further commands. */
  readonly commands?: readonly Command[];
}

/** Runs one command. @returns the exit code: 0 done, 1 refused or failed, 2 not a command that exists */
export async function runCli({ args, config, out, err, commands: further = [] }: CliRun): Promise<number> {
  const all = [...commands, ...further];
  try {
    if (['--version', '-V', 'version'].includes(args[0] ?? '')) {
      out(`headgate ${readVersion()}\n`);
      return exitCodes.ok;
    }
    if (args.every((word) => word === '--json') || ['help', '--help', '-h'].includes(args[0] ?? '')) {
      out(overview(all, args.slice(1)));
      return exitCodes.ok;
    }
    const { command, rest } = findCommand(all, nameFirst(args));
    const { values, positionals } = parseWords(command, rest);
    if (values['help'] === true) {
      out(commandHelp(command));
      return exitCodes.ok;
    }
    return await command.run({
      config,
      out,
      err,
      api: createApiClient(config),
      words: positionals,
      flags: values,
      json: values['json'] === true,
    });
  } catch (error) {
    if (!(error instanceof FailedError || error instanceof UsageError)) throw error;
    err(`headgate: ${error.message}\n`);
    return error instanceof UsageError ? exitCodes.usage : exitCodes.failed;
  }
}

const nameWordsMax = 2;
const globalWords = new Set(['--json', '--help', '-h']);

/** Options that every command has may stand before its name and within it: they go behind it. */
function nameFirst(args: readonly string[]): readonly string[] {
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

function findCommand(all: readonly Command[], args: readonly string[]): { command: Command; rest: string[] } {
  const command = all.find(({ name }) => name.split(' ').every((word, index) => args[index] === word));
  if (command !== undefined) return { command, rest: args.slice(command.name.split(' ').length) };
  const [group = '', name] = args;
  const siblings = all.filter((candidate) => candidate.name.startsWith(`${group} `));
  if (siblings.length === 0) {
    throw new UsageError(`there is no command ${JSON.stringify(group)}; "headgate help" lists those that are`);
  }
  const names = siblings.map((sibling) => sibling.name.slice(group.length + 1)).join(', ');
  const wrong = name === undefined || name.startsWith('-') ? 'say which' : `not ${JSON.stringify(name)}`;
  throw new UsageError(`"headgate ${group}" goes on with one of ${names}: ${wrong}`);
}

function parseWords(command: Command, args: readonly string[]) {
  let parsed;
  try {
    parsed = parseArgs({ args: [...args], options: { ...globalOptions, ...command.options }, allowPositionals: true });
  } catch (error) {
    const [sentence = ''] = (error instanceof Error ? error.message : String(error)).split(/\.(?: |$)/, 1);
    throw new UsageError(`${sentence}: headgate ${command.name} ${command.usage}`);
  }
  const { min, max } = command.words;
  const count = parsed.positionals.length;
  if (parsed.values.help !== true && (count < min || count > max)) {
    throw new UsageError(
      `${count < min ? 'a word is missing' : 'too many words'}: headgate ${command.name} ${command.usage}`,
    );
  }
  return { values: parsed.values as Record<string, string | boolean | undefined>, positionals: parsed.positionals };
}

function commandHelp({ name, usage, summary }: Command): string {
  return `headgate ${name} ${usage}\n\n${summary}\n`;
}

function overview(all: readonly Command[], words: readonly string[]): string {
  const shown = all.filter(({ name }) => words.every((word, index) => name.split(' ')[index] === word));
  const lines = (shown.length === 0 ? commands : shown).map(
    ({ name, usage, summary }) => `  ${`${name} ${usage}`.trim()}\n      ${summary}`,
  );
  return [
    'headgate [--json] COMMAND',
    'headgate --version',
    '',
    ...lines,
    '',
    'HEADGATE_URL names the gateway (http://127.0.0.1:8080 if unset), HEADGATE_API_KEY holds a management key of a',
    'platform admin. welcome, keys recover, backup, restore and verify-books work on the database itself: that of',
    'DATABASE_URL, else the built-in one in HEADGATE_DATA_DIR. Exit codes: 0 done, 1 refused or failed, 2 wrong use.',
    '',
  ].join('\n');
}
