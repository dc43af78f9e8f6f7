import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { nearest } from '#base/edit-distance.ts';
import { packZip, type ZippedFile } from '#base/zip.ts';
import {
  cleanLine,
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
const pushedStack = async () => (await import('#edge/contract/stacks.ts')).pushedStackSchema;
type Stack = Read<typeof stack>;

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
  const target = textFlag(context, 'output') ?? `${name}.zip`;
  const bytes = await context.api.bytes(`${stackPath(name)}/download`);
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
    usage: 'NAME [--output FILE]',
    summary: 'Download the zip of a stack to a file.',
    words: one,
    names: 'stacks',
    options: { output: { type: 'string', about: 'file to write; default: NAME.zip' } },
    run: download,
  },
];
