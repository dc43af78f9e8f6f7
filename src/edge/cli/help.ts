import { type Command, type CommandOption, globalOptions } from './command.ts';

/** What `headgate help` says, out of the commands that there are. */

export function commandHelp({ name, usage, summary, options }: Command): string {
  const lines = Object.entries({ ...options, ...globalOptions }).map(([option, about]) => optionLine(option, about));
  return `headgate ${name} ${usage}`.trimEnd() + `\n\n${summary}\n\n${lines.join('')}`;
}

function optionLine(name: string, { type, short, choices, about }: CommandOption): string {
  const value = type === 'boolean' ? '' : ` ${(choices ?? ['VALUE']).join('|')}`;
  const words = `${short === undefined ? '    ' : `-${short}, `}--${name}${value}`;
  return `  ${about === undefined ? words : `${words.padEnd(30)} ${about}`}\n`;
}

/** All commands, or those that begin with these words. */
export function overview(all: readonly Command[], words: readonly string[]): string {
  const shown = all.filter(({ name }) => words.every((word, index) => name.split(' ')[index] === word));
  const lines = (shown.length === 0 ? all : shown).map(
    ({ name, usage, summary }) => `  ${`${name} ${usage}`.trim()}\n      ${summary}`,
  );
  return [
    'headgate [--json] COMMAND',
    'headgate --version',
    '',
    ...lines,
    '',
    'They ask the gateway that "headgate login" was told, with its key; HEADGATE_URL and HEADGATE_API_KEY win over',
    'that. Without either it is http://127.0.0.1:8080. Engines, holds and reconcile take a management key of a platform',
    'admin. welcome, keys recover, backup, restore, verify-books and doctor work on this machine itself: on the database of',
    'DATABASE_URL, else on the built-in one in HEADGATE_DATA_DIR. Exit codes: 0 done, 1 refused or failed, 2 wrong use.',
    '',
  ].join('\n');
}
