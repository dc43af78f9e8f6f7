import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type EngineDefinition, findFlag } from '#core/catalog/catalog.ts';

/** The cache of huggingface_hub, in which engines keep weights: `models--<owner>--<name>/blobs/…`. */

/** `owner/name`, as huggingface_hub accepts it. */
const repositoryPattern = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** Returns the program's words, or the arguments of a container; none for an external engine. */
export function wordsOf({ driver }: EngineDefinition): readonly string[] {
  return driver.type === 'external' ? [] : driver.type === 'process' ? driver.command : driver.args;
}

/** Returns all repositories that an engine's file names, also in its arguments, such as a draft model. */
export function repositoriesOf(engine: EngineDefinition): ReadonlySet<string> {
  const { huggingFaceId, lora } = engine;
  const named = [huggingFaceId, ...lora.map((adapter) => adapter.huggingFaceId), ...argumentRepositories(engine)];
  return new Set(named.filter((text) => text !== null).filter((text) => repositoryPattern.test(text)));
}

/** Returns the words of the command that may be repositories: those that the engine downloads. */
function argumentRepositories(engine: EngineDefinition): string[] {
  const words = wordsOf(engine).flatMap((word) => word.split(/[\s"',:=@[\]{}]+/));
  return words.filter((word) => repositoryPattern.test(word));
}

/** Returns the folder to which an engine will download a repository of its command; null if it has them all. */
export async function downloadFolder(engine: EngineDefinition, folders: readonly string[]): Promise<string | null> {
  for (const repository of argumentRepositories(engine)) {
    const states = await Promise.all(folders.map((folder) => isComplete(join(folder, folderOf(repository)))));
    if (!states.includes(true)) return folders.at(-1) ?? null;
  }
  return null;
}

async function isComplete(folder: string): Promise<boolean> {
  const [snapshots, blobs] = await Promise.all(
    ['snapshots', 'blobs'].map((part) => readdir(join(folder, part)).catch((): string[] => [])),
  );
  return (snapshots?.length ?? 0) > 0 && blobs?.every((name) => !name.endsWith('.incomplete')) === true;
}

/**
 * Returns the folders of the cache of a process with this environment and these words, as huggingface_hub and vLLM find
 * them.
 */
export function cacheFolders(env: Readonly<Record<string, string | undefined>>, words: readonly string[]): string[] {
  const given = (name: string): string | null => env[name] || null;
  const join2 = (folder: string | null, below: string): string | null => (folder === null ? null : join(folder, below));
  const home = given('HF_HOME') ?? join2(given('XDG_CACHE_HOME') ?? join2(given('HOME'), '.cache'), 'huggingface');
  const hub = given('HF_HUB_CACHE') ?? given('HUGGINGFACE_HUB_CACHE') ?? join2(home, 'hub');
  const download = findFlag(words, '--download-dir')?.value || null;
  return [...new Set([hub, download])].filter((folder) => folder !== null);
}

/** Returns the name of a repository's folder in the cache. */
function folderOf(repository: string): string {
  return `models--${repository.replace('/', '--')}`;
}

/** Returns the repository whose folder this is; null for any other name. */
export function repositoryOfFolder(name: string): string | null {
  const [, owner, own] = /^models--(.+?)--(.+)$/.exec(name) ?? [];
  const repository = `${owner}/${own}`;
  return owner !== undefined && repositoryPattern.test(repository) && folderOf(repository) === name ? repository : null;
}

/** Returns the bytes that the cache has of these repositories, with those of unfinished downloads. */
export async function cachedBytes(folders: readonly string[], repositories: Iterable<string>): Promise<number> {
  const blobs = [...repositories].flatMap((one) => folders.map((folder) => join(folder, folderOf(one), 'blobs')));
  const sizes = await Promise.all(blobs.map(async (folder) => bytesIn(folder)));
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/** Returns the bytes of a folder's files; 0 if there is no such folder. */
async function bytesIn(folder: string): Promise<number> {
  const names = await readdir(folder).catch((): string[] => []);
  const sizes = await Promise.all(names.map(async (name) => writtenBytes(join(folder, name))));
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/** Some downloads reserve the size of a file first, so that its blocks show what is written. */
async function writtenBytes(path: string): Promise<number> {
  try {
    const { size, blocks } = await stat(path);
    return Math.min(size, blocks * 512);
  } catch {
    // A finished download has just been renamed.
    return 0;
  }
}
