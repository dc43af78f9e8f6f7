import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { cursorPageOf, listOf, pageOf } from '#edge/contract/lists.ts';
import { type CommandContext, exitCodes, textFlag } from './command.ts';
import { FailedError, UsageError } from './errors.ts';
import { cleanLine, renderTable } from './table.ts';
import { loadYaml } from './yaml.ts';

/** Shared parts of commands on the API's resources. */

export const jsonText = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/**
 * Loads a schema of the contract. A command loads the schemas that it needs, since loading all takes long at each start.
 */
export type LoadSchema<Answer> = () => Promise<z.ZodType<Answer>>;

/** Type of an answer, by the function that loads its schema. */
export type Read<Load extends LoadSchema<unknown>> = z.output<Awaited<ReturnType<Load>>>;

/** Returns a schema that also accepts fields and values that a newer gateway adds, and keeps them. */
function tolerant<Answer>(schema: z.ZodType<Answer>) {
  return z.custom<Answer>((answer) =>
    (schema.safeParse(answer, { reportInput: true }).error?.issues ?? []).every(isNewValue),
  );
}

/** True for a text that the contract does not list. */
function isNewValue(issue: z.core.$ZodIssue): boolean {
  if (issue.code === 'invalid_union') return issue.errors.some((issues) => issues.every(isNewValue));
  return issue.code === 'invalid_value' && typeof issue.input === 'string';
}

/** @throws FailedError if the gateway has another version than this command */
export async function parseAnswer<Answer>(load: LoadSchema<Answer>, answer: unknown): Promise<Answer> {
  return parsed(tolerant(await load()), answer);
}

function parsed<Answer>(schema: z.ZodType<Answer>, answer: unknown): Answer {
  const { success, data } = schema.safeParse(answer);
  if (success) return data;
  throw new FailedError(
    "this command cannot read the gateway's answer; install the headgate command of the gateway's version",
  );
}

/** Returns the path of one resource in a collection. */
export const pathOf = (collection: string, id: string | undefined): string =>
  `${collection}/${encodeURIComponent(id ?? '')}`;

/** @param names of flags, each with the API's name if that is another word: `cluster=cluster_id` */
export function queryOf(context: CommandContext, names: readonly string[]): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of names) {
    const [flag = '', parameter = flag] = name.split('=');
    const value = textFlag(context, flag);
    if (value !== null) query.set(parameter, value);
  }
  return query;
}

export interface ListRequest<Item> {
  readonly path: string;
  readonly item: LoadSchema<Item>;
  readonly query: URLSearchParams;
  /** Most items of all pages together. */
  readonly limit?: number;
}

/** Reads all pages of a list with cursors, as one list. */
export async function readCursorList<Item>(
  { api }: CommandContext,
  { path, item, query, limit, parameter }: CursorRequest<Item>,
): Promise<readonly Item[]> {
  const schema = listOf(tolerant(await item())).pick({ data: true, next_cursor: true });
  const all: Item[] = [];
  let cursor: string | null = null;
  do {
    const left = String(Math.min(cursorPageLimit, limit - all.length));
    const asked: string = queryText({ ...query, limit: left, [parameter]: cursor });
    const page: { data: Item[]; next_cursor: string | null } = parsed(schema, await api.call('GET', path + asked));
    all.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor !== null && all.length < limit);
  return all;
}

export interface CursorRequest<Item> {
  readonly path: string;
  readonly item: LoadSchema<Item>;
  readonly query: Readonly<Record<string, string | null>>;
  /** Most items of all pages together. */
  readonly limit: number;
  /** Name of the cursor's query parameter. */
  readonly parameter: 'cursor' | 'after';
}

const cursorPageLimit = 500;

/** Most items of one page. */
const pageLimit = 100;

/** Reads all pages of a list with page numbers, as one list. */
export async function readList<Item>(context: CommandContext, request: ListRequest<Item>): Promise<readonly Item[]> {
  const { path, item, query, limit = Number.POSITIVE_INFINITY } = request;
  const schema = pageOf(tolerant(await item()));
  const all: Item[] = [];
  for (let page = 1, pages = 1; page <= pages && all.length < limit; page += 1) {
    const asked = new URLSearchParams([...query, ['page', String(page)], ['limit', String(pageLimit)]]);
    const answer = parsed(schema, await context.api.call('GET', `${path}?${asked.toString()}`));
    all.push(...answer.data);
    pages = answer.pagination.pages;
  }
  return all.slice(0, limit);
}

export interface AfterRequest<Item> {
  readonly path: string;
  readonly item: LoadSchema<Item>;
  /** Most items of all pages together. */
  readonly limit?: number;
}

/** Reads all pages of a list with OpenAI's paging, newest first, for the organization of `--org`. */
export async function readAfterList<Item>(
  context: CommandContext,
  { path, item, limit = Number.POSITIVE_INFINITY }: AfterRequest<Item>,
): Promise<readonly Item[]> {
  const page = cursorPageOf(tolerant(await item())).pick({ data: true, has_more: true, last_id: true });
  const all: Item[] = [];
  let after: string | null = null;
  do {
    const asked: string = queryText({
      organization_id: textFlag(context, 'org'),
      limit: String(Math.min(pageLimit, limit - all.length)),
      after,
    });
    const read: { data: Item[]; has_more: boolean; last_id: string | null } = parsed(
      page,
      await context.api.call('GET', path + asked),
    );
    all.push(...read.data);
    after = read.has_more ? read.last_id : null;
  } while (after !== null && all.length < limit);
  return all;
}

export interface ListText<Item> {
  readonly headings: readonly string[];
  readonly row: (item: Item) => readonly string[];
  /** Text for an empty list. */
  readonly none: string;
  /** Headings that a narrow terminal does not show: see `renderTable`. */
  readonly leaveOut?: readonly string[];
}

/** Prints a list as a table, or as `data` for scripts. */
export function printList<Item>(
  { json, out, terminal }: CommandContext,
  items: readonly Item[],
  { headings, row, none, leaveOut }: ListText<Item>,
): number {
  if (json) out(jsonText({ data: items }));
  else out(items.length === 0 ? `${none}\n` : renderTable(headings, items.map(row), terminal.columns, leaveOut));
  return exitCodes.ok;
}

/** Prints all fields of one resource, as YAML for people. */
export async function printOne(
  { api, json, out }: CommandContext,
  path: string,
  load: LoadSchema<unknown>,
): Promise<number> {
  const answer = await api.call('GET', path);
  await parseAnswer(load, answer);
  out(json ? jsonText(answer) : yamlText(answer));
  return exitCodes.ok;
}

/** Matches names of fields that are times, in seconds since the Unix epoch. */
const moment = /(?:^|_)(?:at|since|until)$/;
const epochMin = 1_000_000_000;
const epochMax = 100_000_000_000;

function withTimes(name: string, value: unknown): unknown {
  const isMoment = typeof value === 'number' && moment.test(name) && value >= epochMin && value < epochMax;
  return isMoment ? `${timeText(value)} UTC` : value;
}

/** Formats seconds since the Unix epoch as `2026-11-24 08:17`. */
export const minuteText = (seconds: number): string => timeText(seconds).slice(0, 16);

/** Formats seconds since the Unix epoch as `2026-11-24 08:17:00`. */
export const timeText = (seconds: number): string =>
  new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ');

/** Formats a value as YAML without line breaks in texts: keys are copied from this output. */
export function yamlText(value: unknown): string {
  const shown: unknown = JSON.parse(JSON.stringify(value, withTimes));
  return `${loadYaml().stringify(shown, { lineWidth: 0 }).trimEnd().split('\n').map(cleanLine).join('\n')}\n`;
}

/** @throws UsageError */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    throw new UsageError(code === 'ENOENT' ? `there is no file ${path}` : `${path} cannot be read (${code})`);
  }
}

/** Returns the parameters that are not null as a query with its `?`; empty if all are null. */
export function queryText(members: Readonly<Record<string, string | null>>): string {
  const known = Object.entries(members).flatMap(([name, value]) => (value === null ? [] : [[name, value] as const]));
  return known.length === 0 ? '' : `?${new URLSearchParams(Object.fromEntries(known)).toString()}`;
}
