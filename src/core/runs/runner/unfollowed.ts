import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, type FileHandle, open, readdir, rename, rmdir, unlink } from 'node:fs/promises';

/**
 * Files of a folder that a run writes to. Any part of a path in it may be a link by now: each folder is opened by itself,
 * never through a link, and the next one from there. openat(2), as Node has it: by way of /proc/self/fd.
 */

/** open(2) on Linux: a handle that needs no right to read. Node does not name it. */
const pathOnly = 0o10_000_000;
const folderFlags = pathOnly | constants.O_DIRECTORY | constants.O_NOFOLLOW;

const at = (folder: FileHandle, name: string): string => `/proc/self/fd/${folder.fd}/${name}`;
/** The folder itself: a name in it, such as `.`, would need its rights. */
const own = (folder: FileHandle): string => `/proc/self/fd/${folder.fd}`;
const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

/** @returns null where there is none, or something else in its place */
async function openFolder(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, folderFlags);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) return null;
    throw error;
  }
}

/**
 * Does something in the folder of a file.
 * @param root a folder that no run can replace
 * @param path of the file, below `root`
 * @returns null where the path leads through anything but folders
 */
export async function inFolderOf<T>(root: string, path: string, act: (place: string) => Promise<T>): Promise<T | null> {
  const parts = path.split('/');
  const name = parts.pop() ?? '';
  if ([...parts, name].some((part) => part === '' || part === '.' || part === '..'))
    throw new Error('no path of a file');
  let folder = await openFolder(root);
  try {
    for (const part of parts) {
      if (folder === null) return null;
      await giveRights(folder);
      const next = await openFolder(at(folder, part));
      await folder.close();
      folder = next;
    }
    if (folder === null) return null;
    await giveRights(folder);
    return await act(at(folder, name));
  } finally {
    await folder?.close();
  }
}

/** Removes a file, or a folder with all that is in it; a link is removed itself. Nothing where there is none. */
export async function removeUnfollowed(root: string, path: string): Promise<void> {
  await inFolderOf(root, path, removeAt);
}

async function removeAt(place: string): Promise<void> {
  if (await isUnlinked(place)) return;
  await emptyFolder(place, []);
  await rmdir(place).catch(unlessGone);
}

/** @returns false for a folder */
async function isUnlinked(place: string): Promise<boolean> {
  try {
    await unlink(place);
    return true;
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return true;
    // EPERM is what POSIX has for it.
    if (code === 'EISDIR' || code === 'EPERM') return false;
    throw error;
  }
}

/**
 * Removes what is in a folder. Folders in it are brought to its top before they are emptied: however deep they are, few
 * handles are open, and no path is too long. They get their owner's rights first.
 * @param kept paths of files below it that stay where they are
 */
export async function emptyFolder(place: string, kept: readonly string[]): Promise<void> {
  const top = await openFolder(place);
  if (top === null) return;
  try {
    for (;;) {
      const names = await namesIn(top);
      const going = names.filter((name) => !kept.some((path) => path === name || path.startsWith(`${name}/`)));
      if (going.length === 0) break;
      for (const name of going) await takeOut(top, name);
    }
    const inner = Map.groupBy(
      kept.filter((path) => path.includes('/')),
      (path) => path.slice(0, path.indexOf('/')),
    );
    for (const [name, paths] of inner) {
      const below = paths.map((path) => path.slice(name.length + 1));
      await emptyFolder(at(top, name), below);
    }
  } finally {
    await top.close();
  }
}

async function takeOut(top: FileHandle, name: string): Promise<void> {
  if (!(await isUnlinked(at(top, name)))) await flatten(top, name);
}

/** Removes a folder of `top`; the folders in it are in `top` afterwards. */
async function flatten(top: FileHandle, name: string): Promise<void> {
  const folder = await openFolder(at(top, name));
  if (folder === null) return;
  try {
    for (const inner of await namesIn(folder)) {
      if (await isUnlinked(at(folder, inner))) continue;
      // A folder without them cannot be moved.
      await openRights(at(folder, inner));
      await rename(at(folder, inner), at(top, randomUUID())).catch(unlessGone);
    }
  } finally {
    await folder.close();
  }
  await rmdir(at(top, name)).catch(unlessGone);
}

async function openRights(place: string): Promise<void> {
  const folder = await openFolder(place);
  try {
    if (folder !== null) await giveRights(folder);
  } finally {
    await folder?.close();
  }
}

/** What a run has taken from its owner, who is the gateway where that is not root. */
async function giveRights(folder: FileHandle): Promise<void> {
  const { mode } = await folder.stat();
  if ((mode & 0o700) !== 0o700) await chmod(own(folder), (mode & 0o777) | 0o700);
}

async function namesIn(folder: FileHandle): Promise<string[]> {
  await giveRights(folder);
  return readdir(own(folder));
}

function unlessGone(error: unknown): void {
  if (codeOf(error) !== 'ENOENT') throw error;
}

/** Removes a folder that no run can replace, with all that runs have put into it. */
export async function removeFolder(path: string): Promise<void> {
  await emptyFolder(path, []);
  await rmdir(path).catch(unlessGone);
}

/** Opens a plain file of a run to read it. Null where there is none: a run may have put a pipe or a link there. */
export function openUnfollowed(root: string, path: string): Promise<FileHandle | null> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  return inFolderOf(root, path, (place) => open(place, flags).catch(() => null));
}
