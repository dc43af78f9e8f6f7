import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { nearest } from '#base/edit-distance.ts';
import { packZip, type ZippedFile } from '#base/zip.ts';
import {
  cleanLine,
  cleanText,
  type Command,
  type CommandContext,
  type CommandOption,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  printOne,
  queryOf,
  type Read,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over /v1/stacks. Fields that a newer gateway adds to its answers are ignored. */

const stack = async () => (await import('#edge/contract/stacks.ts')).stackSchema;
const versionEntry = async () => (await import('#edge/contract/stacks.ts')).stackVersionEntrySchema;
const stackDiff = async () => (await import('#edge/contract/stacks.ts')).stackDiffSchema;
const pushedStack = async () => (await import('#edge/contract/stacks.ts')).pushedStackSchema;
type Stack = Read<typeof stack>;
type Version = Read<typeof versionEntry>;
type InputChange = Read<typeof stackDiff>['inputs'][number];

const stacksPath = '/v1/stacks';
export const stackPath = (name: string | undefined): string => pathOf(stacksPath, name);

const headings = ['STACK', 'VERSION', 'VISIBLE TO', 'CATEGORY', 'TITLE'];

const row = ({ name, version, visibility, category, title }: Stack): string[] => [
  name,
  String(version.number),
  visibility === 'global' ? 'everybody' : 'owner',
  category ?? '-',
  title,
];

async function list(context: CommandContext): Promise<number> {
  const query = queryOf(context, ['search', 'category']);
  const found = await readList(context, { path: stacksPath, item: stack, query });
  return printList(context, found, {
    headings,
    row,
    none: 'no stacks; upload one with "headgate stacks push FOLDER"',
  });
}

async function show(context: CommandContext): Promise<number> {
  const [word = ''] = context.words;
  try {
    return await printOne(context, stackPath(word), stack);
  } catch (error) {
    if (!(error instanceof FailedError) || error.code.toLowerCase() !== 'not_found') throw error;
    return showTitled(context, word, error);
  }
}

/** Finds a stack by its title, which people see. Two stacks may have the same title. */
async function showTitled(context: CommandContext, word: string, error: FailedError): Promise<number> {
  const all = await readList(context, { path: stacksPath, item: stack, query: new URLSearchParams() });
  const titled = all.filter(({ title }) => title.toLowerCase() === word.toLowerCase());
  const [first, ...others] = titled;
  if (first !== undefined && others.length === 0) return printOne(context, stackPath(first.name), stack);
  const within = all.filter(({ name, title }) => `${name} ${title}`.toLowerCase().includes(word.toLowerCase()));
  const near =
    within.length === 1
      ? within[0]?.name
      : nearest(
          word.toLowerCase(),
          all.flatMap(({ name, title }) => [name, title.toLowerCase()]),
        );
  const meant = all.find(({ name, title }) => name === near || title.toLowerCase() === near);
  const names = titled.length > 1 ? titled.map(({ name }) => name).join(', ') : null;
  const hint = names ?? (meant === undefined ? null : meant.name);
  if (hint === null) throw error;
  throw new FailedError(`there is no stack ${JSON.stringify(word)}; did you mean ${hint}?`, error);
}

/** Matches files that never belong to a stack, so that a folder in use need not be cleaned before it is packed. */
const leftOut = /^(\.terraform|\.git|node_modules)$|\.tfstate(\.|$)|\.tfplan$/;
const filesMax = 2000;

function readFolder(root: string, below = ''): ZippedFile[] {
  return readdirSync(join(root, below), { withFileTypes: true }).flatMap((entry): ZippedFile[] => {
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    if (leftOut.test(entry.name)) return [];
    if (entry.isDirectory()) return readFolder(root, path);
    if (!entry.isFile())
      throw new FailedError(`${path} is neither a file nor a folder; a stack can only contain these`);
    const file = join(root, path);
    return [{ path, bytes: readFileSync(file), isExecutable: (statSync(file).mode & 0o111) !== 0 }];
  });
}

/** Reads a zip file as it is, or packs a folder. @throws UsageError, FailedError */
async function readPackage(path: string): Promise<{ bytes: Buffer; fileName: string }> {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) throw new UsageError(`there is no ${path}`);
  if (!stats.isDirectory()) return { bytes: readFileSync(path), fileName: basename(path) };
  const files = readFolder(path);
  if (files.length > filesMax) throw new FailedError(`${path} has more than ${filesMax} files`);
  return { bytes: await packZip(files, { compress: true }), fileName: `${basename(resolve(path))}.zip` };
}

const fieldFlags = ['name', 'title', 'description', 'category', 'icon'] as const;
/**
 * Milliseconds for an upload: a download by the gateway takes up to half a minute, and other downloads may be queued
 * before.
 */
const pushTimeoutMs = 180_000;

async function push(context: CommandContext): Promise<number> {
  const [source = ''] = context.words;
  const fields = fieldFlags.flatMap((name): [string, string][] => {
    const value = textFlag(context, name);
    return value === null ? [] : [[name, value]];
  });
  const answer = await context.api.call('POST', stacksPath, {
    ...(source.startsWith('https://')
      ? { body: { url: source, ...Object.fromEntries(fields) } }
      : { form: await formOf(source, fields) }),
    answerTimeoutMs: pushTimeoutMs,
  });
  const pushed = await parseAnswer(pushedStack, answer);
  for (const warning of pushed.warnings) context.err(`headgate: ${cleanLine(warning)}\n`);
  const seen = pushed.visibility === 'global' ? 'visible to everybody' : 'visible to its owner only';
  const version = `${pushed.outcome === 'unchanged' ? 'unchanged, ' : ''}version ${pushed.version.number}`;
  context.out(context.json ? jsonText(answer) : `${pushed.name}: ${version}; ${seen}\n`);
  return exitCodes.ok;
}

async function formOf(path: string, fields: readonly [string, string][]): Promise<FormData> {
  const { bytes, fileName } = await readPackage(path);
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, value);
  form.append('file', new File([new Uint8Array(bytes)], fileName, { type: 'application/zip' }));
  return form;
}

async function remove(context: CommandContext): Promise<number> {
  const { api, json, out, words } = context;
  const path = stackPath(words[0]);
  const { name, version, visibility } = await parseAnswer(stack, await api.call('GET', path));
  await confirm(context, {
    question: `Delete the stack "${name}" (version ${version.number}, visible to ${visibility === 'global' ? 'everybody' : 'its owner'})?`,
    consequence: 'All its versions are deleted. Resources that its runs created stay, and can still be destroyed.',
    done: 'deleted',
  });
  await api.call('DELETE', path);
  out(json ? jsonText({ deleted: words[0] }) : `${words[0]}: deleted\n`);
  return exitCodes.ok;
}

async function download(context: CommandContext): Promise<number> {
  const [name = ''] = context.words;
  const query = versionQuery(context, ['stack-version=version']);
  const target = textFlag(context, 'output') ?? `${name}.zip`;
  const bytes = await context.api.bytes(`${stackPath(name)}/download${query}`);
  try {
    // Never overwrites an existing file.
    writeFileSync(target, bytes, { flag: 'wx' });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    throw new FailedError(code === 'EEXIST' ? `${target} already exists` : `${target} cannot be written (${code})`);
  }
  context.out(context.json ? jsonText({ file: target, bytes: bytes.length }) : `${target}: ${bytes.length} bytes\n`);
  return exitCodes.ok;
}

/** Parses the number of a version. @throws UsageError */
export function versionNumber(option: string, text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new UsageError(`${option} must be the number of a version; "headgate stacks versions" lists them`);
}

/** Returns the query for options with versions, such as `stack-version=version`. @throws UsageError */
function versionQuery(context: CommandContext, names: readonly string[]): string {
  for (const name of names.map((one) => one.replace(/=.*/, ''))) {
    const text = textFlag(context, name);
    if (text !== null) versionNumber(`--${name}`, text);
  }
  const query = queryOf(context, names).toString();
  return query === '' ? '' : `?${query}`;
}

function versionRow({
  number,
  newest,
  created_at: at,
  size,
  files,
  sha256,
  created_by: by,
  in_use: used,
}: Version): string[] {
  const uses = [newest ? 'newest' : '', used === true ? 'in use' : ''].filter((text) => text !== '');
  const time = at.slice(0, 'YYYY-MM-DDTHH:mm:ss'.length).replace('T', ' ');
  return [String(number), time, by ?? '-', String(files), String(size), sha256.slice(0, 12), uses.join(', ')];
}

async function versions(context: CommandContext): Promise<number> {
  const path = `${stackPath(context.words[0])}/versions`;
  const found = await readList(context, { path, item: versionEntry, query: new URLSearchParams() });
  return printList(context, found, {
    headings: ['VERSION', 'UPLOADED (UTC)', 'BY', 'FILES', 'BYTES', 'SHA-256', ''],
    row: versionRow,
    none: 'no versions',
  });
}

/** Prints the differences as a patch that "git apply" accepts, after comments about inputs and omitted files. */
async function diff(context: CommandContext): Promise<number> {
  const query = versionQuery(context, ['from', 'to']);
  const answer = await context.api.call('GET', `${stackPath(context.words[0])}/diff${query}`);
  const { from, to, files, inputs } = await parseAnswer(stackDiff, answer);
  const omitted = files.flatMap(({ path, change, omitted: why }) =>
    why === null ? [] : [`file ${path}: ${change} (${why === 'binary' ? 'not text' : 'too large to show'})`],
  );
  const none = inputs.length === 0 && files.length === 0 ? ['no differences'] : [];
  const comments = [`version ${from} to ${to}`, ...none, ...inputs.map(inputLine), ...omitted];
  // A patch without its control characters would not apply.
  const shown = (text: string): string => (context.terminal.isWatched ? cleanText(text) : text);
  const patches = files.flatMap(({ diff: patch }) => (patch === null ? [] : [shown(patch)]));
  context.out(context.json ? jsonText(answer) : [...comments.map(toComment), ...patches].join(''));
  return exitCodes.ok;
}

/** Marks each line, since a type may have several: git would apply a patch that one of them contains. */
const toComment = (text: string): string => `# ${cleanLine(text).replaceAll('\n', '\n# ')}\n`;

function inputLine({ name, change, before, after }: InputChange): string {
  const said = [before, after].flatMap((input) => (input === undefined ? [] : [inputText(input)]));
  return `input ${name}: ${change} (${said.join(' -> ')})`;
}

function inputText({
  type,
  type_expression: expression,
  required,
  sensitive,
  default: value,
}: Stack['inputs'][number]): string {
  const isShown = value !== null && value !== undefined && !sensitive;
  const parts = [expression ?? type, required ? 'required' : '', sensitive ? 'sensitive' : ''];
  return [...parts, isShown ? `default ${JSON.stringify(value)}` : ''].filter((part) => part !== '').join(', ');
}

async function revert(context: CommandContext): Promise<number> {
  const [name = ''] = context.words;
  const to = textFlag(context, 'to');
  const body = to === null ? {} : { version: versionNumber('--to', to) };
  const answer = await context.api.call('POST', `${stackPath(name)}/revert`, { body, answerTimeoutMs: pushTimeoutMs });
  const { outcome, version } = await parseAnswer(pushedStack, answer);
  const text = outcome === 'unchanged' ? `unchanged, version ${version.number}` : `reverted; version ${version.number}`;
  context.out(context.json ? jsonText(answer) : `${name}: ${text}\n`);
  return exitCodes.ok;
}

export const versionOption: CommandOption = { type: 'string', about: 'number of the version; default: the newest one' };

const fieldOptions: Readonly<Record<(typeof fieldFlags)[number], CommandOption>> = {
  name: { type: 'string', about: 'overrides the name in the manifest, or of the folder' },
  title: { type: 'string', about: 'title of the stack' },
  description: { type: 'string', about: 'description of the stack' },
  category: { type: 'string', about: 'Scheduler, Orchestration, ML Framework, Monitoring, or another' },
  icon: { type: 'string', about: 'an emoji, or the https address of an image' },
};
const one = { min: 1, max: 1 } as const;

export const stackCommands: readonly Command[] = [
  {
    name: 'stacks ls',
    usage: '[--search TEXT] [--category CATEGORY]',
    summary: 'List the stacks of the catalog.',
    words: { min: 0, max: 0 },
    options: {
      search: { type: 'string', about: 'text in name, title or description' },
      category: { type: 'string', about: 'only this category' },
    },
    run: list,
  },
  {
    name: 'stacks show',
    usage: 'NAME',
    summary: 'Show a stack: inputs, web port, version.',
    words: one,
    names: 'stacks',
    options: {},
    run: show,
  },
  {
    name: 'stacks push',
    usage: 'FOLDER|ZIP|URL [--name NAME] [--title TEXT] [--description TEXT] [--category CATEGORY] [--icon ICON]',
    summary: 'Upload a Terraform module as a stack, or as a new version of one; a folder is packed first.',
    words: one,
    options: fieldOptions,
    run: push,
  },
  {
    name: 'stacks rm',
    usage: 'NAME [--yes]',
    summary: 'Delete a stack with all its versions; asks first.',
    words: one,
    names: 'stacks',
    options: yesOption,
    run: remove,
  },
  {
    name: 'stacks download',
    usage: 'NAME [--stack-version N] [--output FILE]',
    summary: 'Download the zip of a stack to a file.',
    words: one,
    names: 'stacks',
    options: {
      'stack-version': versionOption,
      output: { type: 'string', about: 'file to write; default: NAME.zip' },
    },
    run: download,
  },
  {
    name: 'stacks versions',
    usage: 'NAME',
    summary: 'List the versions of a stack that are kept, newest first.',
    words: one,
    names: 'stacks',
    options: {},
    run: versions,
  },
  {
    name: 'stacks diff',
    usage: 'NAME [--from N] [--to N]',
    summary: 'Show what differs between two versions of a stack, as a patch.',
    words: one,
    names: 'stacks',
    options: {
      from: { type: 'string', about: 'number of a version; default: the one before --to' },
      to: versionOption,
    },
    run: diff,
  },
  {
    name: 'stacks revert',
    usage: 'NAME [--to N]',
    summary: 'Add a new version of a stack with the package of an earlier one.',
    words: one,
    names: 'stacks',
    options: { to: { type: 'string', about: 'number of a version; default: the one before the newest' } },
    run: revert,
  },
];
