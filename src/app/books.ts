import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { ConfigError } from '#base/config.ts';
import { connectDedicated, type Db, type DedicatedDb } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { openSpool, type Spool, spoolFolderOf } from '#base/spool.ts';
import { readNamespace } from '#core/gateways/gateways.ts';
import { booksLimits } from '#core/metering/metering.ts';

/** Where settlements go: connections that nothing else takes, and a spool for when they lead nowhere. */
export interface BooksPlace {
  readonly books: DedicatedDb;
  readonly spool: Spool;
}

export interface BooksPlaceOptions {
  readonly db: Db;
  readonly databaseUrl: string;
  readonly dataDir: string;
  /** Which of the gateways of this data folder opens them, and how many there are. */
  readonly slot: number;
  readonly slots: number;
  readonly log: Log;
}

/** One settles, one keeps what is refused or asks while the other waits. */
const connections = 2;

/**
 * A spool belongs to one database: what was spooled for another one waits until that is named again.
 * @throws ConfigError naming HEADGATE_DATA_DIR when the spool cannot be opened
 */
export async function openBooks(options: BooksPlaceOptions): Promise<BooksPlace> {
  const { db, databaseUrl, dataDir, log } = options;
  const folder = spoolFolderOf(dataDir, await readNamespace(db));
  try {
    const spool = await openOwn(folder, options);
    if (options.slot === 0) await warnOfOthers(join(dataDir, 'spool'), basename(folder), log);
    const limits = { purpose: 'books', poolMax: connections, limits: booksLimits };
    return { books: connectDedicated(databaseUrl, limits), spool };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`HEADGATE_DATA_DIR: the spool in ${folder} cannot be opened (${reason}).`, error);
  }
}

async function warnOfOthers(parent: string, own: string, log: Log): Promise<void> {
  for (const name of await namesIn(parent)) {
    if (name === own) continue;
    const slots = await namesIn(join(parent, name));
    const files = (await Promise.all(slots.map((slot) => namesIn(join(parent, name, slot))))).flat();
    const path = join(parent, name);
    if (files.length > 0)
      log.warn(
        { path, files: files.length },
        'usage of another database is in the spool; it is booked when a gateway of that database starts on this data folder',
      );
  }
}

async function openOwn(parent: string, { slot, slots, log }: BooksPlaceOptions): Promise<Spool> {
  // What more gateways than there are now have left is taken over by the first one.
  const abandoned = slot === 0 ? (await namesIn(parent)).filter((name) => Number(name) >= slots) : [];
  return openSpool({
    folder: join(parent, String(slot)),
    abandoned: abandoned.map((name) => join(parent, name)),
    log,
  });
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
}
