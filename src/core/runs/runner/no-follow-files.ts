import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, type FileHandle, open, readdir, rename, rmdir, unlink } from 'node:fs/promises';

/**
 * Access to files in a folder that a run writes to. Any part of a path may have become a link, so each folder is opened
 * separately, never through a link, and the next one relative to it. This is openat(2), which Node only offers by way
 * of /proc/self/fd.
 */

/** O_PATH of open(2) on Linux: a handle that needs no read permission. Node has no constant for it. */
const pathOnly = 0o10_000_000;
const folderFlags = pathOnly | constants.O_DIRECTORY | constants.O_NOFOLLOW;

const at = (folder: FileHandle, name: string): string => `/proc/self/fd/${folder.fd}/${name}`;
/** Path of the folder itself: any name inside, even `.`, would require its permissions. */
const own = (folder: FileHandle): string => `/proc/self/fd/${folder.fd}`;
const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

/** @returns null if the path is missing or not a folder */
async function openFolder(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, folderFlags);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) return null;
    throw error;
  }
}

/**
 * Calls `act` in the folder of a file.
 * @param root a folder that no run can replace
 * @param path of the file, below `root`
 * @returns null if a part of the path is not a folder
 */
export async function inFolderOf<T>(root: string, path: string, act: (place: string) => Promise<T>): Promise<T | null> {
  const parts = path.split('/');
  const name = parts.pop() ?? '';
  if ([...parts, name].some((part) => part === '' || part === '.' || part === '..')) throw new Error('not a file path');
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

/** Removes a file, a link itself, or a folder with its content. Does nothing if the path does not exist. */
export async function removeUnfollowed(root: string, path: string): Promise<void> {
  await inFolderOf(root, path, removeAt);
}

async function removeAt(place: string): Promise<void> {
  if (await isUnlinked(place)) return;
  await emptyFolder(place, []);
  await rmdir(place).catch(unlessMissing);
}

/** Unlinks anything but a folder. @returns false for a folder */
async function isUnlinked(place: string): Promise<boolean> {
  try {
    await unlink(place);
    return true;
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return true;
    // POSIX specifies EPERM for folders.
    if (code === 'EISDIR' || code === 'EPERM') return false;
    throw error;
  }
}

/**
 * Empties a folder. Moves each subfolder to the top before emptying it: at any depth, few handles are open and no path
 * is too long. Owner permissions are restored first.
 * @param kept paths of files below the folder that stay
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

/** Removes a folder of `top`, and moves its subfolders to `top`. */
async function flatten(top: FileHandle, name: string): Promise<void> {
  const folder = await openFolder(at(top, name));
  if (folder === null) return;
  try {
    for (const inner of await namesIn(folder)) {
      if (await isUnlinked(at(folder, inner))) continue;
      // A folder without owner permissions cannot be moved.
      await openRights(at(folder, inner));
      await rename(at(folder, inner), at(top, randomUUID())).catch(unlessMissing);
    }
  } finally {
    await folder.close();
  }
  await rmdir(at(top, name)).catch(unlessMissing);
}

async function openRights(place: string): Promise<void> {
  const folder = await openFolder(place);
  try {
    if (folder !== null) await giveRights(folder);
  } finally {
    await folder?.close();
  }
}

/** Restores the owner's permissions, which a run may have removed. The owner is the gateway, unless that is root. */
async function giveRights(folder: FileHandle): Promise<void> {
  const { mode } = await folder.stat();
  if ((mode & 0o700) !== 0o700) await chmod(own(folder), (mode & 0o777) | 0o700);
}

async function namesIn(folder: FileHandle): Promise<string[]> {
  await giveRights(folder);
  return readdir(own(folder));
}

function unlessMissing(error: unknown): void {
  if (codeOf(error) !== 'ENOENT') throw error;
}

/** Removes a folder that no run can replace, with all content of runs. */
export async function removeFolder(path: string): Promise<void> {
  await emptyFolder(path, []);
  await rmdir(path).catch(unlessMissing);
}

/** Opens a file of a run for reading. Does not block on a pipe. Null if the path is missing, unreadable or a link. */
export function openUnfollowed(root: string, path: string): Promise<FileHandle | null> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  return inFolderOf(root, path, (place) => open(place, flags).catch(() => null));
}
