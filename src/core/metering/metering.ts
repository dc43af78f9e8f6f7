import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import { createGroupCommit } from './group-commit.ts';
import type { UsageRecord } from './record.ts';
import { dropOldPartitions, ensurePartitions, packPartitions } from './partitions.ts';
import { createRefusals, type RefusalKey } from './refusals.ts';
import { createReports, type Reports } from './reports.ts';
import { createWriter } from './writer.ts';

/**
 * The books of usage. While a stream passes, meters read the engine's own counts; when a request ends, its record,
 * the hourly sums and the wallet's ledger are written in one transaction, and only then may the response end.
 * When Postgres is away, records wait in memory and are tried again; `healthy` is false and nothing new is admitted.
 */
export interface Metering {
  /** Resolves when the record and its charge are durable. Repeating an id changes nothing. */
  settle(record: UsageRecord): Promise<void>;
  /** Counts a refusal of this minute; written within about a second. */
  countRefusal(refusal: RefusalKey): void;
  readonly healthy: boolean;
  readonly pending: number;
  /** How long the oldest record has waited to be durable, in milliseconds; 0 when none waits. */
  readonly oldestPendingMs: number;
  readonly reports: Reports;
  /** Makes next months' partitions; to be called at the start and daily. */
  ensurePartitions(): Promise<void>;
  /** Builds the indexes of months that have ended anew, which takes a fifth off their records; to be called daily. */
  packPartitions(): Promise<void>;
  /** Drops the months of records that ended more than `days` ago; sums and the ledger are kept. */
  dropOldPartitions(days: number): Promise<number>;
  flushRefusals(): Promise<void>;
  /** Waits until everything is written, at most `timeoutMs`. */
  close(timeoutMs: number): Promise<void>;
}

export interface MeteringOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly wallet: Wallet;
  /** Told of every group commit: its records, and how long it took with all its tries. */
  readonly onCommit?: (records: number, durationMs: number) => void;
}

const batchMax = 500;
const retryDelayMs = 250;
const stallMs = 3_000;

export function createMetering({ db, clock, log, wallet, onCommit }: MeteringOptions): Metering {
  const writer = createWriter({ sql: db.sql, clock, wallet });
  const commits = createGroupCommit<UsageRecord>({
    ...(onCommit !== undefined && { onCommit }),
    log,
    clock,
    batchMax,
    retryDelayMs,
    stallMs,
    async write(records) {
      await writer.write(records);
    },
  });
  const refusals = createRefusals({ db, clock, log });

  return {
    settle: (record) => commits.add(record),
    countRefusal: (refusal) => refusals.count(refusal),
    flushRefusals: () => refusals.flush(),
    ensurePartitions: () => ensurePartitions({ db, clock }),
    packPartitions: () => packPartitions({ db, clock }),
    dropOldPartitions: (days) => dropOldPartitions({ db, clock }, days),
    reports: createReports({ db, wallet }),
    async close(timeoutMs) {
      let late: NodeJS.Timeout | undefined;
      const givenUp = new Promise<void>((resolve) => {
        late = setTimeout(() => {
          commits.stop();
          resolve();
        }, timeoutMs);
      });
      await Promise.race([commits.idle().then(() => refusals.flush()), givenUp]);
      clearTimeout(late);
    },
    get healthy() {
      return commits.healthy;
    },
    get pending() {
      return commits.pending;
    },
    get oldestPendingMs() {
      return commits.oldestPendingMs;
    },
  };
}

export type { OutcomeKind, UsageRecord } from './record.ts';
export type { RecordFilter, RecordPage } from './record-list.ts';
export type { Reports } from './reports.ts';
export { type SummaryDimension, summaryDimensions, type SummaryGroup, type UsageSums } from './summary.ts';
export { meterJson, type JsonMeterOptions, type JsonMeterResult } from './json-meter.ts';
export { createPiecesMeter, type PiecesMeter, type PiecesMeterResult } from './pieces-meter.ts';
export {
  createStreamMeter,
  type StreamFailure,
  type StreamMeter,
  type StreamMeterOptions,
  type UsageSource,
} from './stream-meter.ts';
export { costOf, noUsage, type Usage } from './usage.ts';
export type { LedgerLine, LedgerLines, LedgerLinesRequest, LedgerPosition } from './ledger-lines.ts';
export { isBeforeRetention } from './partitions.ts';
export type { RefusalKey } from './refusals.ts';
export { type BooksFinding, type BooksProof, verifyBooks } from './verify-books.ts';
export { createWriter, type Writer, type Written } from './writer.ts';
