import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '#base/log.ts';

/**
 * The logins of registries, from the file that `docker login` writes:
 * https://github.com/docker/cli/blob/master/cli/config/configfile/file.go
 */

/** A secret login, in the form of X-Registry-Auth: https://docs.docker.com/reference/api/engine/version/v1.51/ */
export interface RegistryLogin {
  readonly serveraddress: string;
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
  readonly registrytoken?: string;
}

export interface ImageLogin {
  /** null: the registry is asked without a login. */
  readonly login: RegistryLogin | null;
  /** Sentence for operators, without secrets: the login that the registry is asked with, or why there is none. */
  readonly remark: string;
  /** True if there is a login for the registry that cannot be used. */
  readonly isUnusable: boolean;
}

export interface RegistryLogins {
  /** Reads the login of an image's registry from the file as it is now. Never rejects. */
  find(image: string): Promise<ImageLogin>;
}

export interface RegistryLoginsOptions {
  /** Folder of `config.json`; null: there is none. */
  readonly folder: string | null;
  readonly log: Log;
}

const fileBytesMax = 1_048_576;
/** Key under which Docker's own client stores the login of Docker Hub. */
const hubKey = 'https://index.docker.io/v1/';
const hubHost = 'docker.io';
const hubHosts: ReadonlySet<string> = new Set([hubHost, 'index.docker.io', 'registry-1.docker.io']);

const fileSchema = z.object({
  auths: z.record(z.string(), z.unknown()).nullish(),
  credHelpers: z.record(z.string(), z.string()).nullish(),
  credsStore: z.string().nullish(),
});
type ConfigFile = z.output<typeof fileSchema>;

const entrySchema = z.object({
  auth: z.string().nullish(),
  username: z.string().nullish(),
  password: z.string().nullish(),
  identitytoken: z.string().nullish(),
  registrytoken: z.string().nullish(),
});

/** Creates logins that read the file for every image: it is small, and `docker login` may change it at any time. */
export function createRegistryLogins({ folder, log }: RegistryLoginsOptions): RegistryLogins {
  const path = folder === null ? null : join(folder, 'config.json');
  let reported: string | null = null;
  return {
    async find(image) {
      if (path === null) return without('DOCKER_CONFIG is not set, and this user has no home folder');
      const registry = registryOf(image);
      const file = await readConfig(path);
      const trouble = 'trouble' in file ? file.trouble : null;
      if (trouble !== null && trouble !== reported) {
        log.warn({ file: path, trouble }, 'cannot read the registry logins; images are pulled without a login');
      }
      reported = trouble;
      if ('trouble' in file) return without(`${path} ${file.trouble}`, true);
      if (file.config === null) return without(`there is no ${path}`);
      return findLogin(file.config, registry, path);
    },
  };
}

/** @param why a clause */
function without(why: string, isUnusable = false): ImageLogin {
  return { login: null, remark: `Pulled without a login: ${why}.`, isUnusable };
}

/** Reads the file. `config` is null if there is no file, which is usual. `trouble` never quotes the file. */
async function readConfig(path: string): Promise<{ config: ConfigFile | null } | { trouble: string }> {
  let text: string;
  try {
    const found = await stat(path);
    if (!found.isFile()) return { trouble: 'is not a file' };
    if (found.size > fileBytesMax) return { trouble: `is larger than ${fileBytesMax} bytes` };
    text = await readFile(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
    return code === 'ENOENT' ? { config: null } : { trouble: `cannot be read (${code})` };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const [place] = /line \d+ column \d+/.exec(String(error)) ?? [];
    return { trouble: place === undefined ? 'is not JSON' : `is not JSON (${place})` };
  }
  const parsed = fileSchema.safeParse(value);
  return parsed.success ? { config: parsed.data } : { trouble: 'does not have the format of docker login' };
}

/**
 * Returns the registry of an image: the text before the first slash if it looks like a host, else Docker Hub.
 * https://github.com/distribution/reference/blob/main/normalize.go, `splitDockerDomain`
 */
export function registryOf(image: string): string {
  const end = image.indexOf('/');
  if (end === -1) return hubHost;
  const first = image.slice(0, end);
  const isHost = first === 'localhost' || /[.:]/.test(first) || first.toLowerCase() !== first;
  return !isHost || first === 'index.docker.io' ? hubHost : first;
}

function findLogin(config: ConfigFile, registry: string, path: string): ImageLogin {
  const entries = entriesOf(config.auths ?? {}, registry).map((entry) => readEntry(entry, registry));
  const login = entries.find((entry) => typeof entry === 'object');
  if (login !== undefined)
    return { login, remark: `Pulled with the login for ${registry} in ${path}.`, isUnusable: false };
  if (entries.includes('malformed')) return without(`the login for ${registry} in ${path} cannot be parsed`, true);
  const own = [registry, ...(registry === hubHost ? [hubKey, 'index.docker.io'] : [])]
    .map((key) => config.credHelpers?.[key] ?? '')
    .find((name) => name !== '');
  const helper = own ?? config.credsStore ?? '';
  if (helper === '') return without(`${path} has no login for ${registry}`);
  const why = `${path} delegates the login for ${registry} to the credential helper ${helper}, which Headgate does not run: add the login to auths`;
  // `docker login` leaves an empty entry if the helper has stored the login.
  return without(why, own !== undefined || entries.length > 0);
}

/** Returns all entries of a registry, the preferred one first. */
function entriesOf(auths: Readonly<Record<string, unknown>>, registry: string): unknown[] {
  const best = registry === hubHost ? hubKey : registry;
  return Object.keys(auths)
    .filter((key) => key === best || isKeyOf(key, registry))
    .toSorted((a, b) => Number(b === best) - Number(a === best))
    .map((key) => auths[key]);
}

/** Old clients wrote addresses where new ones write hosts. */
function isKeyOf(key: string, registry: string): boolean {
  const [host = '', ...path] = key.replace(/^[a-z]+:\/\//i, '').split('/');
  if (registry !== hubHost) return host === registry;
  // Tokens of other kinds are stored under longer paths of Docker Hub's key.
  return hubHosts.has(host) && /^(?:v[12])?$/.test(path.filter((part) => part !== '').join('/'));
}

function readEntry(entry: unknown, registry: string): RegistryLogin | 'empty' | 'malformed' {
  const parsed = entrySchema.safeParse(entry);
  if (!parsed.success) return 'malformed';
  const { auth, identitytoken, registrytoken } = parsed.data;
  const pair = auth ? decodeAuth(auth) : { username: parsed.data.username, password: parsed.data.password };
  if (pair === null) return 'malformed';
  const { username, password } = pair;
  if (!password && !identitytoken && !registrytoken) return 'empty';
  return {
    // The engine sends the login to no other host.
    serveraddress: registry === hubHost ? hubKey : registry,
    ...(username && { username }),
    ...(password && { password }),
    ...(identitytoken && { identitytoken }),
    ...(registrytoken && { registrytoken }),
  };
}

/** base64 of `user:password`. */
function decodeAuth(auth: string): { username: string; password: string } | null {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(auth)) return null;
  const text = Buffer.from(auth, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  // Some tools pad the password.
  return colon < 1 ? null : { username: text.slice(0, colon), password: text.slice(colon + 1).replace(/\0+$/, '') };
}

/** Removes the secrets of a login from a text that may repeat them. */
export function hideLogin(text: string, login: RegistryLogin | null): string {
  if (login === null) return text;
  const { username = '', password = '', identitytoken = '', registrytoken = '' } = login;
  const pair = password === '' ? '' : Buffer.from(`${username}:${password}`).toString('base64');
  // The longest first: one may be a part of another.
  const secrets = [pair, password, identitytoken, registrytoken].toSorted((a, b) => b.length - a.length);
  return secrets.reduce((left, secret) => (secret === '' ? left : left.replaceAll(secret, '***')), text);
}
