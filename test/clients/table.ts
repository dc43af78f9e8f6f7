import { caseNames, type CaseName, type Client } from './list.ts';

export interface Outcome {
  readonly client: Client;
  /** In the order of `client.shown`; none if the client could not be installed. */
  readonly versions: readonly string[];
  /** `ok`, or how the case failed, for every case of the client. */
  readonly results: Readonly<Partial<Record<CaseName, string>>>;
}

const shownMax = 60;

/** Returns a text as one cell: on one line, shortened, and without the end of a cell. */
function cell(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  const short = line.length > shownMax ? `${line.slice(0, shownMax)}…` : line;
  return short.replaceAll('|', '\\|');
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

/** Returns the Markdown table of versions and results; a cell is empty if the client does not offer the case. */
export function renderTable(outcomes: readonly Outcome[]): string {
  const rows = outcomes.map(({ client, versions, results }) =>
    row([
      `${client.shown.map((name) => `\`${name}\``).join(', ')} (${client.registry})`,
      versions.join(', '),
      ...caseNames.map((name) => cell(results[name] ?? '')),
    ]),
  );
  const head = ['client', 'version', ...caseNames];
  return [row(head), row(head.map(() => '---')), ...rows].join('\n');
}

/** Returns one line for each case that failed, with all that is known of the failure. */
export function failuresOf(outcomes: readonly Outcome[]): string[] {
  return outcomes.flatMap(({ client, results }) =>
    Object.entries(results).flatMap(([name, result]) =>
      result === 'ok' ? [] : [`${client.folder}, ${name}: ${result.replaceAll(/\s+/g, ' ')}`],
    ),
  );
}

/**
 * Reads the results that a script prints, one JSON object on a line. Other lines are the client's own.
 * @param reason why the script ended, for cases without a result
 */
export function readResults(client: Client, stdout: string, reason: string): Outcome['results'] {
  const printed = new Map<string, string>();
  for (const line of stdout.split('\n')) {
    const [, name, result] = /^\{"case": ?("(?:[^"\\]|\\.)*"), ?"result": ?("(?:[^"\\]|\\.)*")\}$/.exec(line) ?? [];
    if (name !== undefined && result !== undefined) printed.set(parsed(name), parsed(result));
  }
  return Object.fromEntries(client.cases.map((name) => [name, printed.get(name) ?? `no result: ${reason}`]));
}

const parsed = (text: string): string => String(JSON.parse(text));

const begin = '<!-- npm run clients -- --write -->';
const end = '<!-- end -->';

/** Returns a chapter with its table replaced. @throws Error if the chapter has no place for it */
export function replaceTable(chapter: string, table: string): string {
  const [before, rest] = halves(chapter, begin);
  const [, after] = halves(rest, end);
  return `${before}${begin}\n\n${table}\n\n${end}${after}`;
}

/** Returns the table of a chapter. @throws Error if the chapter has no place for it */
export function tableOf(chapter: string): string {
  return halves(halves(chapter, begin)[1], end)[0].trim();
}

function halves(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  if (at === -1) throw new Error(`the chapter has no line ${mark}`);
  return [text.slice(0, at), text.slice(at + mark.length)];
}
