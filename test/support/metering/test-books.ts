import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openBillingStore, type BillingStore } from '#app/books.ts';
import { type Clock, systemClock } from '#base/clock.ts';
import type { Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import { createAudit } from '#core/audit/audit.ts';
import {
  createHistory,
  createMetering,
  type History,
  type Metering,
  type UnspooledListener,
} from '#core/metering/metering.ts';
import { createWallet, type Wallet } from '#core/wallet/wallet.ts';

/** The rooms that settle, on a database of a test's own. */
export interface TestBooks extends BillingStore {
  readonly wallet: Wallet;
  readonly metering: Metering;
  readonly history: History;
  /** Folder of the spool; deleted when they are closed. */
  readonly dataDir: string;
  readonly close: () => Promise<void>;
}

export interface TestBooksOptions {
  readonly db: Db;
  /** Database of the connections that settle. */
  readonly databaseUrl: string;
  /** An existing folder, which stays. */
  readonly dataDir?: string;
  /** A minute when absent: a busy machine spools nothing by chance. */
  readonly spoolAfterMs?: number;
  readonly onUnspooled?: UnspooledListener;
  readonly clock?: Clock;
  /** Not to be started when false: there are no partitions then. */
  readonly isStarted?: boolean;
}

export async function openTestBooks({
  db,
  databaseUrl,
  clock = systemClock,
  ...options
}: TestBooksOptions): Promise<TestBooks> {
  const log = createLog('silent');
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'hg-books-')));
  const place = await openBillingStore({ db, databaseUrl, dataDir, gatewayDir: dataDir, slot: 0, slots: 1, log });
  const wallet = createWallet({ db, clock, audit: createAudit({ clock }) });
  const metering = createMetering({
    db,
    ...place,
    clock,
    log,
    wallet,
    staleMs: 300_000,
    spoolAfterMs: options.spoolAfterMs ?? 60_000,
  });
  if (options.onUnspooled !== undefined) metering.onUnspooled(options.onUnspooled);
  if (options.isStarted !== false) await metering.start();
  return {
    ...place,
    wallet,
    metering,
    history: createHistory({ db, wallet, connections: 2, waitMsMax: 60_000 }),
    dataDir,
    async close() {
      await metering.close(5000);
      await place.books.close();
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true });
    },
  };
}
