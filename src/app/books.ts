import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { ConfigError } from '#base/config-error.ts';
import { listGatewayDirs, lockOrphanedDir } from '#base/config/config.ts';
import { connectDedicated, type Db, type DedicatedDb } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { listSpooled, openSpool, type Spool, spoolFolderOf } from '#base/spool.ts';
import { readNamespace } from '#core/gateways/gateways.ts';
import { recordLimits } from '#core/metering/metering.ts';

/** Storage of settlements: connections of their own, and a spool for when PostgreSQL is unavailable. */
export interface BillingStore {
  readonly books: DedicatedDb;
  readonly spool: Spool;
  /**
   * Moves orphaned records to the spool: those of stopped gateways of the data folder, and of workers that this gateway
   * no longer has. One call at a time. Never rejects: a folder that cannot be read is logged.
   */
  readonly adoptOrphaned: () => Promise<void>;
}

export interface BillingStoreOptions {
  readonly db: Db;
  readonly databaseUrl: string;
  readonly dataDir: string;
  /** The folder of this gateway in the data folder. */
  readonly gatewayDir: string;
  /** Number of this worker in the gateway folder; `slots` is the count of workers. */
  readonly slot: number;
  readonly slots: number;
  readonly log: Log;
}

/** One connection settles, one records rejected requests or sends queries while the other waits. */
const connections = 2;

/**
 * Opens connections and spool. A spool belongs to one database: records for another database wait until a gateway uses
 * that database again.
 * @throws ConfigError naming HEADGATE_DATA_DIR when the spool cannot be opened
 */
export async function openBillingStore(options: BillingStoreOptions): Promise<BillingStore> {
  const { db, databaseUrl, gatewayDir, log, slot } = options;
  const database = await readNamespace(db);
  const folder = spoolFolderOf(gatewayDir, database);
  try {
    const spool = await openSpool({ folder: join(folder, String(slot)), log });
    if (slot === 0) await warnOfOthers(join(gatewayDir, 'spool'), basename(folder), log);
    const limits = { purpose: 'books', poolMax: connections, limits: recordLimits };
    return {
      books: connectDedicated(databaseUrl, limits),
      spool,
      // The first worker does this for all workers.
      adoptOrphaned: async () => (slot === 0 ? adoptOrphaned(spool, database, options) : undefined),
    };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`HEADGATE_DATA_DIR: the spool in ${folder} cannot be opened (${reason}).`, error);
  }
}

async function adoptOrphaned(
  spool: Spool,
  database: string,
  { dataDir, gatewayDir, slots, log }: BillingStoreOptions,
): Promise<void> {
  for (const dir of listGatewayDirs(dataDir)) {
    const folder = spoolFolderOf(dir, database);
    const isOrphaned = (worker: string): boolean => dir !== gatewayDir || Number(worker) >= slots;
    try {
      if ((await listSpooled(folder)).length === 0) continue;
      const release = dir === gatewayDir ? (): void => undefined : lockOrphanedDir(dir);
      if (release !== null) await takeOverFrom(folder, isOrphaned, spool).finally(release);
    } catch (error) {
      log.error(
        { err: error, path: folder },
        'usage records of a stopped gateway cannot be read from its folder (see path), and are not billed yet; retrying',
      );
    }
  }
}

async function takeOverFrom(folder: string, isOrphaned: (worker: string) => boolean, spool: Spool): Promise<void> {
  for (const worker of await namesIn(folder)) if (isOrphaned(worker)) await spool.takeOver(join(folder, worker));
}

async function warnOfOthers(parent: string, own: string, log: Log): Promise<void> {
  for (const name of await namesIn(parent)) {
    if (name === own) continue;
    const path = join(parent, name);
    const files = await listSpooled(path);
    if (files.length > 0)
      log.warn(
        { path, files: files.length },
        'this data folder has usage records of another database (see path), which are not billed yet: to bill them, start a gateway with that database and this data folder',
      );
  }
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
}
