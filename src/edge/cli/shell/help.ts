import { type Command, type CommandOption, globalOptions } from './command.ts';
import { wrap } from './table.ts';

/** Writes the text of `headgate help` from the list of commands. */

/** Longest line, in columns: longer lines are hard to read. */
const columnsMax = 100;
const columnsMin = 40;
const optionColumns = 32;

/** Returns the width of the text. Without a terminal each sentence is one line, so that it can be searched. */
const widthOf = (columns: number | null): number =>
  columns === null ? Infinity : Math.max(columnsMin, Math.min(columns, columnsMax));

function indented(text: string, indent: number, columns: number): string {
  const margin = ' '.repeat(indent);
  return wrap(text, columns - indent)
    .map((line) => `${margin}${line}\n`)
    .join('');
}

/**
 * Returns a command's summary and options, then the commands whose names begin with its name: `wallet ledger` for
 * `wallet`.
 */
export function commandHelp(
  { name, usage, summary, options }: Command,
  all: readonly Command[],
  columns: number | null,
): string {
  const width = widthOf(columns);
  const [first = '', ...more] = wrap(`headgate ${name} ${usage}`.trimEnd(), width - 2);
  const head = [first, ...more.map((line) => `  ${line}`)].join('\n');
  const lines = Object.entries({ ...options, ...globalOptions }).map(([option, about]) =>
    optionLines(option, about, width),
  );
  const further = furtherOf(name, all);
  const group = further.length === 0 ? '' : `\nRelated commands\n${inFull(further, width)}`;
  return `${head}\n\n${indented(summary, 0, width)}\n${lines.join('')}${group}`;
}

const furtherOf = (name: string, all: readonly Command[]): readonly Command[] =>
  all.filter((other) => other.name.startsWith(`${name} `));

function optionLines(name: string, { type, short, choices, about }: CommandOption, columns: number): string {
  const value = type === 'boolean' ? '' : ` ${(choices ?? ['VALUE']).join('|')}`;
  const words = `  ${short === undefined ? '    ' : `-${short}, `}--${name}${value}`;
  const below = indented(about, optionColumns, columns);
  // An option that fills its column gets a line of its own.
  return words.length + 1 > optionColumns ? `${words}\n${below}` : `${words.padEnd(optionColumns)}${below.trimStart()}`;
}

/** Returns a summary's first sentence, or the part of the sentence that says what the command is for. */
export const briefly = ({ summary }: Pick<Command, 'summary'>): string => summary.split(/[:;.] |\.$/)[0] ?? '';

const sections: readonly (readonly [title: string, groups: readonly string[]])[] = [
  ['Ask models', ['login', 'logout', 'models', 'chat', 'code']],
  ['Batches', ['batches', 'files']],
  ['Keys and money', ['keys', 'budgets', 'usage', 'wallet', 'costs', 'reconcile', 'holds']],
  ['Engines', ['engines', 'hosts', 'import']],
  ['Stacks on clusters', ['clusters', 'stacks', 'runs']],
  ['Organizations and people', ['orgs', 'users', 'projects', 'service-accounts', 'webhooks', 'audit']],
  ["On the gateway's machine", ['doctor', 'welcome', 'backup', 'restore', 'verify-books', 'verify-statement']],
];

const groupOf = ({ name }: Command): string => name.split(' ')[0] ?? '';

/** Lists all commands, one per line; or the commands that begin with these words, with their usage. */
export function overview(all: readonly Command[], words: readonly string[], columns: number | null): string {
  const shown = all.filter(({ name }) => words.every((word, index) => name.split(' ')[index] === word));
  const width = widthOf(columns);
  const isAll = words.length === 0 || shown.length === 0;
  return `headgate [--json] [--wide] COMMAND\nheadgate --version\n\n${isAll ? brief(all, width) : inFull(shown, width)}\n${closing(width)}`;
}

function brief(all: readonly Command[], columns: number): string {
  const named = sections.flatMap(([, groups]) => groups);
  const others = [...new Set(all.map(groupOf))].filter((group) => !named.includes(group));
  const width = Math.max(...all.map(({ name }) => name.length)) + 2;
  return [...sections, ['Other', others] as const]
    .map(([title, groups]) => {
      const lines = groups
        .flatMap((group) => all.filter((command) => groupOf(command) === group))
        .map((command) => {
          const about = indented(briefly(command), width + 2, columns);
          return `  ${command.name.padEnd(width)}${about.trimStart()}`;
        });
      return `${title}\n${lines.join('')}`;
    })
    .join('\n');
}

function inFull(shown: readonly Command[], columns: number): string {
  return shown
    .map(({ name, usage, summary }) => {
      const [first = '', ...more] = wrap(`${name} ${usage}`.trim(), columns - 4);
      return `  ${[first, ...more.map((line) => `  ${line}`)].join('\n  ')}\n${indented(summary, 6, columns)}`;
    })
    .join('');
}

const closing = (columns: number): string =>
  indented(
    'Run "headgate help GROUP", such as "headgate help engines", for the usage of its commands, and "headgate COMMAND ' +
      '--help" for the options of a command.',
    0,
    columns,
  ) +
  indented(
    'Commands use the gateway and key from "headgate login". HEADGATE_URL and HEADGATE_API_KEY override them. The ' +
      "default gateway is http://127.0.0.1:8080. Commands on the gateway's machine use the database of DATABASE_URL, or " +
      'the built-in database in HEADGATE_DATA_DIR. Exit codes: 0 done, 1 rejected or failed, 2 wrong usage, 3 ' +
      'PostgreSQL lost recent commits (verify-books only), 130 ended by Ctrl-C.',
    0,
    columns,
  );

/** Returns the list of commands as JSON, for programs. */
export function commandList(all: readonly Command[], words: readonly string[]): object {
  const shown = all.filter(({ name }) => words.every((word, index) => name.split(' ')[index] === word));
  const data = (shown.length === 0 ? all : shown).map(({ name, usage, summary, options }) => ({
    object: 'command',
    name,
    usage,
    summary,
    options: Object.entries({ ...options, ...globalOptions }).map(([option, known]) => ({ name: option, ...known })),
  }));
  return { object: 'list', data };
}
