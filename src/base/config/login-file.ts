import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { withFileLock } from '#base/file-lock.ts';
import type { Environment } from './values.ts';

/** The file of `headgate login`: the gateway that commands use, and a key for each gateway. */

const fileSchema = z.object({ url: z.string().nullable(), keys: z.record(z.string(), z.string()) });

export interface Login extends z.output<typeof fileSchema> {
  /** Reason why the file cannot be used; then there is no URL and no key. */
  readonly problem: string | null;
}

const nothing: Login = { url: null, keys: {}, problem: null };

/** Normalizes a URL under which a key is stored. */
export const normalUrl = (url: string): string => (URL.parse(url)?.href ?? url).replace(/\/+$/, '');

/** The folders of a user, by the XDG base directory specification; null without a home. */
export function userFolders(environment: Environment): {
  readonly loginFile: string | null;
  readonly programsDir: string | null;
} {
  const { XDG_CONFIG_HOME: config, XDG_DATA_HOME: data, HOME: home } = environment;
  const below = (folder: string | undefined, usual: string): string | null => {
    if (folder?.startsWith('/') === true) return join(folder, 'headgate');
    return home?.startsWith('/') === true ? join(home, usual, 'headgate') : null;
  };
  const configDir = below(config, '.config');
  const dataDir = below(data, '.local/share');
  return {
    loginFile: configDir === null ? null : join(configDir, 'login.json'),
    programsDir: dataDir === null ? null : join(dataDir, 'programs'),
  };
}

/**
 * Reads the file; without a file there is no URL and no key. A file that others can read is not used: they have its
 * keys.
 */
export function readLogin(path: string | null): Login {
  if (path === null) return nothing;
  try {
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return nothing;
    if ((stats.mode & 0o077) !== 0) {
      return {
        ...nothing,
        problem: `other users can read ${path}; run "chmod 600 ${path}", and replace the keys if somebody may have read them`,
      };
    }
    const parsed = parse(path);
    return parsed === null ? { ...nothing, problem: broken(path) } : { ...parsed, problem: null };
  } catch (error) {
    return { ...nothing, problem: `${path} cannot be read (${error instanceof Error ? error.message : ''})` };
  }
}

const broken = (path: string): string => `${path} is damaged; run "headgate login" again`;

/** Parses the file; null if its format is not this module's. @throws if the file cannot be read */
function parse(path: string): z.output<typeof fileSchema> | null {
  const text = readFileSync(path, 'utf8');
  try {
    return fileSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Describes what is lost with a file that is not used, except the key of gateway `name`; null if nothing is lost. */
function lossOf(path: string, name: string): string | null {
  let parsed: ReturnType<typeof parse>;
  try {
    parsed = parse(path);
  } catch {
    parsed = null;
  }
  if (parsed === null) return `the content of ${path} was invalid and is discarded`;
  const others = Object.keys(parsed.keys).filter((other) => other !== name);
  if (others.length === 0) return null;
  return `other users could read ${path}: its keys for ${others.join(', ')} are discarded; create new keys there`;
}

/**
 * Sets the gateway that commands use, and stores its key, in a file that only this user can read.
 * @returns a sentence about the former content that is lost; null if nothing is lost
 */
export function writeLogin(
  path: string,
  { url, apiKey }: { readonly url: string; readonly apiKey: string },
): string | null {
  return alone(path, () => {
    const name = normalUrl(url);
    const { keys, problem } = readLogin(path);
    const loss = problem === null ? null : lossOf(path, name);
    write(path, { url, keys: { ...keys, [name]: apiKey } });
    return loss;
  });
}

/** @returns true if there was a key of this gateway. @throws Error with the reason why the file cannot be used */
export function removeLogin(path: string, url: string): boolean {
  if (!existsSync(path)) return false;
  return alone(path, () => {
    const { keys, url: current, problem } = readLogin(path);
    if (problem !== null) throw new Error(problem);
    const name = normalUrl(url);
    if (!(name in keys)) return false;
    const rest = Object.fromEntries(Object.entries(keys).filter(([other]) => other !== name));
    if (Object.keys(rest).length === 0) rmSync(path);
    else write(path, { url: current !== null && normalUrl(current) === name ? null : current, keys: rest });
    return true;
  });
}

const lockWaitMs = 10_000;

/** Runs a change under a lock: two changes at once could overwrite each other, and one key would be lost. */
function alone<T>(path: string, change: () => T): T {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  return withFileLock(`${path}.lock`, lockWaitMs, change);
}

/** Writes the whole file or nothing: readers find the old file until the new one is complete. */
function write(path: string, login: z.output<typeof fileSchema>): void {
  const draft = `${path}.${process.pid}`;
  try {
    writeFileSync(draft, `${JSON.stringify(login, null, 2)}\n`, { mode: 0o600, flag: 'wx' });
    // Not left to the umask.
    chmodSync(draft, 0o600);
    renameSync(draft, path);
  } finally {
    rmSync(draft, { force: true });
  }
}
