import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { connectDedicated, type DedicatedDb } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { openSpool, type Spool } from '#base/spool.ts';
import { booksLimits } from '#core/metering/metering.ts';

/** Where settlements go: connections that nothing else takes, and a spool for when they lead nowhere. */
export interface BooksPlace {
  readonly books: DedicatedDb;
  readonly spool: Spool;
}

export interface BooksPlaceOptions {
  readonly databaseUrl: string;
  readonly dataDir: string;
  /** Which of the gateways of this data folder opens them, and how many there are. */
  readonly slot: number;
  readonly slots: number;
  readonly log: Log;
}

/** One settles, one keeps what is refused or asks while the other waits. */
const connections = 2;

/** @throws the file system's error when the data folder cannot be written */
export async function openBooks({ databaseUrl, dataDir, slot, slots, log }: BooksPlaceOptions): Promise<BooksPlace> {
  const parent = join(dataDir, 'spool');
  // What more gateways than there are now have left is taken over by the first one.
  const abandoned = slot === 0 ? (await namesIn(parent)).filter((name) => Number(name) >= slots) : [];
  const spool = await openSpool({
    folder: join(parent, String(slot)),
    abandoned: abandoned.map((name) => join(parent, name)),
    log,
  });
  return {
    books: connectDedicated(databaseUrl, { purpose: 'books', poolMax: connections, limits: booksLimits }),
    spool,
  };
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
}
