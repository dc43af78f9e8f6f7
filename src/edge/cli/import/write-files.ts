import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkEngineText, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';
import { cleanLine, type CommandContext, exitCodes, FailedError, textFlag, UsageError } from '#edge/cli/shell/shell.ts';
import { fileNameOf, type ImportNote, type ImportResult, renderDraft } from './draft.ts';
import { importLitellm } from './litellm.ts';
import { importLlamaSwap } from './llama-swap.ts';

/** Writes engine files from configurations of other programs, and reports settings that could not be carried over. */

interface NewFile {
  readonly path: string;
  readonly id: string;
  readonly text: string;
}

const errorCode = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : String(error);

function readSource(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${path} cannot be read (${errorCode(error)})`);
  }
}

/** Returns the files that pass the gateway's own check; files that fail are noted and left out. */
function render({ drafts, notes }: ImportResult, folder: string): { files: NewFile[]; notes: ImportNote[] } {
  const schemaPath = existsSync(join(folder, 'engine.schema.json')) ? './engine.schema.json' : null;
  const allNotes = [...notes];
  const files = drafts.flatMap((draft): NewFile[] => {
    const comments = notes.filter(({ model }) => model === draft.source).map(({ text }) => text);
    const id = String(draft.fields['id']);
    const path = join(folder, fileNameOf(id));
    const text = renderDraft(draft, comments, schemaPath);
    const problems = checkEngineText(text, path);
    for (const { field, message } of problems) {
      allNotes.push({ model: draft.source, text: `not imported: ${field === null ? '' : `${field}: `}${message}` });
    }
    return problems.length > 0 ? [] : [{ path, id, text }];
  });
  return { files, notes: allNotes };
}

/** Writes the files. Without --force, nothing is written if any file already exists. */
function write(files: readonly NewFile[], folder: string, force: boolean): void {
  const present = files.filter(({ path }) => existsSync(path)).map(({ path }) => path);
  if (present.length > 0 && !force) {
    throw new FailedError(`nothing was written, because ${present.join(', ')} already exists; --force overwrites it`);
  }
  try {
    mkdirSync(folder, { recursive: true });
    for (const { path, text } of files) writeFileSync(path, text, { flag: force ? 'w' : 'wx' });
  } catch (error) {
    throw new FailedError(`${folder} cannot be written (${errorCode(error)})`);
  }
}

/** Returns problems of the folder after the import, with its other files included. */
function checkFolder(folder: string): readonly string[] {
  const result = loadEngineFiles(folder);
  return result.ok ? [] : result.problems.map(formatEngineFileProblem);
}

const programs = {
  'llama-swap': importLlamaSwap,
  litellm: importLitellm,
} as const;

/** @throws FailedError, UsageError */
export function writeFiles(context: CommandContext, program: keyof typeof programs): number {
  const { config, words, flags, json, out, err } = context;
  const [source = ''] = words;
  const folder = textFlag(context, 'out') ?? config.enginesDir ?? 'engines';
  const { files, notes } = render(programs[program](readSource(source)), folder);
  write(files, folder, flags['force'] === true);
  const problems = files.length === 0 ? [] : checkFolder(folder);
  if (json) {
    const written = files.map(({ path, id }) => ({ path, id }));
    out(`${JSON.stringify({ files: written, notes, problems }, null, 2)}\n`);
  } else {
    for (const { path, id } of files) out(`wrote ${path} (${id})\n`);
    for (const { model, text } of notes) out(cleanLine(`${model ?? source}: ${text}`) + '\n');
    for (const problem of problems) err(`${problem}\n`);
  }
  if (files.length === 0) {
    err(`headgate: ${cleanLine(source)} has no model that can be imported\n`);
    return exitCodes.failed;
  }
  return problems.length === 0 ? exitCodes.ok : exitCodes.failed;
}
