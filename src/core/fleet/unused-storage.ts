import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Audit } from '#core/audit/audit.ts';
import { decodeDefinition, encodeDefinition, type EngineDefinition, fillReferences } from '#core/catalog/catalog.ts';
import {
  cachedBytes,
  cacheFolders,
  type ImageStore,
  repositoryOfFolder,
  wordsOf,
} from '#core/fleet/drivers/drivers.ts';
import { readRunImages } from '#core/fleet/runs/runs.ts';
import { readGoodDefinitions } from '#core/fleet/store/store.ts';
import type { CommandAuthor } from './operator-commands.ts';

/** An image or weights on a disk that no engine file names. */
export interface UnusedItem {
  readonly type: 'image' | 'weights';
  /** Image with its tag or digest, or `owner/name` of a repository. */
  readonly name: string;
  /** Host of an image; `local` for weights, which are in the cache of this gateway's machine. */
  readonly host: string;
  /** Size on the disk; for an image, layers that other images share are included. */
  readonly bytes: number;
}

/** Images and weights that engines have left on disks. */
export interface UnusedStorage {
  /**
   * Lists images that Headgate ran engines from, on the hosts of the docker driver that answer, and repositories in the
   * caches of this machine's processes. What any engine file names, disabled ones included, is not listed, nor what the
   * last version of a file names that passed its checks.
   */
  list(): Promise<readonly UnusedItem[]>;
  /**
   * Deletes the listed items of this name.
   * @returns the deleted items; empty if none is listed
   * @throws AppError conflict if a container uses the image, or a process without an engine file may read the weights
   */
  delete(name: string, by: CommandAuthor): Promise<readonly UnusedItem[]>;
}

export interface UnusedStorageOptions {
  readonly db: Pick<Db, 'sql' | 'orm'>;
  readonly audit: Audit;
  readonly images: ImageStore;
  /** The gateway's environment, by which processes find their cache. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** All engine files, disabled ones included. */
  readonly definitions: () => readonly EngineDefinition[];
  readonly fleet: {
    list(): readonly { readonly engineId: string }[];
    orphans(): readonly { readonly host: string; readonly name: string }[];
  };
}

/** An item with where it is: the cache of weights, or null for an image. */
interface Found extends UnusedItem {
  readonly folder: string | null;
}

export function createUnusedStorage(options: UnusedStorageOptions): UnusedStorage {
  const { db, audit, images } = options;

  async function find(): Promise<readonly Found[]> {
    const good = (await readGoodDefinitions(db)).flatMap((text) => decodeDefinition(text) ?? []);
    const definitions = [...options.definitions(), ...good];
    const named = definitions.flatMap((engine) => textsOf(options, engine)).map((text) => text.toLowerCase());
    // A longer name that contains this one keeps it too: too little is deleted rather than too much.
    const isNamed = (text: string): boolean => named.some((file) => file.includes(text.toLowerCase()));
    const pulled = (await readRunImages(db)).filter((image) => !isNamed(image));
    const stored = await images.storedImages(pulled);
    const weights = await findWeights(cachesOf(options, definitions), isNamed);
    return [...stored.map((one): Found => ({ type: 'image', ...one, folder: null })), ...weights];
  }

  async function remove({ folder, host, name }: Found): Promise<void> {
    if (folder === null) await images.removeImage(host, name);
    else {
      requireKnownProcesses(options);
      await rm(folder, { recursive: true, force: true });
    }
  }

  return {
    list: async () => (await find()).map(itemOf),
    async delete(name, by) {
      const found = (await find()).filter((item) => item.name === name);
      for (const item of found) {
        await remove(item);
        const { type, host, bytes } = item;
        const target = { action: 'storage.deleted', targetType: type, targetId: name };
        await db.orm.transaction((tx) => audit.record(tx, { ...by, ...target, before: { host, bytes }, after: null }));
      }
      return found.map(itemOf);
    },
  };
}

const itemOf = ({ type, name, host, bytes }: Found): UnusedItem => ({ type, name, host, bytes });

/** Returns the definition of an engine, and the variables of its process with their references filled in. */
function textsOf(options: UnusedStorageOptions, engine: EngineDefinition): string[] {
  return [encodeDefinition(engine), ...Object.values(variablesOf(options, engine)).flatMap((text) => text ?? [])];
}

/** Returns the variables that an engine file sets for a process; none for other engines. */
function variablesOf({ env }: UnusedStorageOptions, { driver }: EngineDefinition) {
  if (driver.type !== 'process') return {};
  return Object.fromEntries(
    Object.entries(driver.env).map(([name, text]) => [name, fillReferences(text, env) ?? undefined]),
  );
}

/** Returns the caches of the gateway's own environment and of the processes of the files. */
function cachesOf(options: UnusedStorageOptions, definitions: readonly EngineDefinition[]): ReadonlySet<string> {
  const { env } = options;
  const processes = definitions.filter(({ driver }) => driver.type === 'process');
  return new Set([
    ...cacheFolders(env, []),
    ...processes.flatMap((one) => cacheFolders({ ...env, ...variablesOf(options, one) }, wordsOf(one))),
  ]);
}

/** Folders of a repository in the cache. A repository with anything else is not listed. */
const partNames: ReadonlySet<string> = new Set(['blobs', 'refs', 'snapshots', '.no_exist']);

async function findWeights(caches: ReadonlySet<string>, isNamed: (text: string) => boolean): Promise<Found[]> {
  const found: Found[] = [];
  for (const cache of caches) {
    for (const entry of await readdir(cache).catch((): string[] => [])) {
      const name = repositoryOfFolder(entry);
      const folder = join(cache, entry);
      if (name === null || isNamed(name) || isNamed(entry) || !(await isRepository(folder))) continue;
      found.push({ type: 'weights', name, host: 'local', bytes: await cachedBytes([cache], [name]), folder });
    }
  }
  return found;
}

async function isRepository(folder: string): Promise<boolean> {
  try {
    // A link leads to a folder outside the cache.
    if (!(await lstat(folder)).isDirectory()) return false;
    const names = await readdir(folder);
    return names.includes('blobs') && names.every((name) => partNames.has(name));
  } catch {
    return false;
  }
}

/** @throws AppError conflict while a process of a deleted file runs, whose weights are unknown */
function requireKnownProcesses({ fleet, definitions }: UnusedStorageOptions): void {
  const ids = new Set(definitions().map(({ id }) => id));
  const ending = fleet.list().find(({ engineId }) => !ids.has(engineId))?.engineId;
  const running = ending ?? fleet.orphans().find(({ host }) => host === 'local')?.name;
  if (running === undefined) return;
  throw new AppError('conflict', {
    message: `${running} still runs without an engine file, and may read the weights. Wait for its end, or end it.`,
  });
}
