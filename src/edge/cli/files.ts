import { readFileSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  queryText,
  type Read,
  readAfterList,
  textFlag,
  timeText,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over /v1/files. Fields that a newer gateway adds to its answers are ignored. */

const file = async () => (await import('#edge/contract/batches.ts')).fileSchema;
type StoredFile = Read<typeof file>;

const filesPath = '/v1/files';
const uploadTimeoutMs = 600_000;
/** Most bytes of an upload: the gateway's limit. */
const fileBytesMax = 104_857_600;

export const orgQuery = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

/** Returns the value of `--limit`. @throws UsageError */
export function limitOf(context: CommandContext): number {
  const text = textFlag(context, 'limit') ?? '100';
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new UsageError('--limit must be a whole number of 1 or more');
}

const headings = ['FILE', 'BYTES', 'PURPOSE', 'EXPIRES (UTC)', 'NAME'];
const row = ({ id, bytes, purpose, expires_at: until, filename }: StoredFile): string[] => [
  id,
  String(bytes),
  purpose,
  timeText(until),
  filename,
];

async function list(context: CommandContext): Promise<number> {
  const found = await readAfterList(context, { path: filesPath, item: file, limit: limitOf(context) });
  return printList(context, found, { headings, row, none: 'no files; upload one with "headgate files upload FILE"' });
}

/** Uploads a file for a batch. @throws UsageError, FailedError */
export async function uploadFile({ api }: CommandContext, path: string): Promise<StoredFile> {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !stats.isFile()) throw new UsageError(`there is no file ${path}`);
  if (stats.size > fileBytesMax) throw new FailedError(`${path} is larger than 100 MiB; split it into several files`);
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new File([new Uint8Array(readFileSync(path))], basename(path)));
  return parseAnswer(file, await api.call('POST', filesPath, { form, answerTimeoutMs: uploadTimeoutMs }));
}

async function upload(context: CommandContext): Promise<number> {
  const sent = await uploadFile(context, context.words[0] ?? '');
  context.out(context.json ? jsonText(sent) : `${sent.id} "${cleanLine(sent.filename)}": ${sent.bytes} bytes\n`);
  return exitCodes.ok;
}

async function remove(context: CommandContext): Promise<number> {
  const path = pathOf(filesPath, context.words[0]) + queryText(orgQuery(context));
  const { id, filename } = await parseAnswer(file, await context.api.call('GET', path));
  await confirm(context, {
    question: `Delete the file "${filename}" (${id})?`,
    consequence: 'Its content is deleted permanently.',
    done: 'deleted',
  });
  const answer = await context.api.call('DELETE', path);
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(filename)}": deleted\n`);
  return exitCodes.ok;
}

async function get(context: CommandContext): Promise<number> {
  return writeContent(context, context.words[0] ?? '');
}

/** Writes the bytes of a file to standard output, or to the file of `--out`, which is never overwritten. */
export async function writeContent(context: CommandContext, id: string): Promise<number> {
  const parts = context.api.parts(`${pathOf(filesPath, id)}/content${queryText(orgQuery(context))}`);
  const out = textFlag(context, 'out');
  if (out === null) {
    const decoder = new TextDecoder();
    for await (const part of parts) context.out(decoder.decode(part, { stream: true }));
    context.out(decoder.decode());
    return exitCodes.ok;
  }
  const target = await open(out, 'wx').catch((error: unknown) => {
    throw errorOf(error, out);
  });
  try {
    for await (const part of parts) await target.writeFile(part);
  } catch (error) {
    throw errorOf(error, out);
  } finally {
    await target.close();
  }
  return exitCodes.ok;
}

function errorOf(error: unknown, out: string): unknown {
  if (!(error instanceof Error) || !('code' in error) || error instanceof FailedError) return error;
  if (error.code === 'EEXIST') return new UsageError(`${out} already exists`);
  return new FailedError(`${out} cannot be written (${String(error.code)})`);
}

export const orgOption = {
  org: { type: 'string', about: 'another organization, for platform administrators' },
} as const;
export const limitOption = { limit: { type: 'string', about: 'number of entries; default: 100' } } as const;
export const outOption = { out: { type: 'string', about: 'a new file; default: standard output' } } as const;

export const fileCommands: readonly Command[] = [
  {
    name: 'files ls',
    usage: '[--limit N] [--org ID]',
    summary: 'List the files of batches: requests, answers and errors.',
    words: { min: 0, max: 0 },
    options: { ...limitOption, ...orgOption },
    run: list,
  },
  {
    name: 'files upload',
    usage: 'FILE',
    summary: 'Upload a file of requests for a batch: JSON Lines, at most 100 MiB.',
    words: { min: 1, max: 1 },
    options: {},
    run: upload,
  },
  {
    name: 'files get',
    usage: 'ID [--out FILE] [--org ID]',
    summary: 'Print the content of a file, or write it to a local file.',
    words: { min: 1, max: 1 },
    options: { ...outOption, ...orgOption },
    run: get,
  },
  {
    name: 'files rm',
    usage: 'ID [--org ID] [--yes]',
    summary: 'Delete a file; asks first.',
    words: { min: 1, max: 1 },
    options: { ...yesOption, ...orgOption },
    run: remove,
  },
];
