import { setTimeout } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import type { Db, DedicatedDb } from '#base/database/database.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { Spool } from '#base/spool.ts';
import {
  createGroupCommit,
  createRefusals,
  createRejectedRequests,
  createWriter,
  decodeRecord,
  type Durable,
  encodeRecord,
  type GroupCommit,
  insertQuarantined,
  listQuarantined,
  type QuarantinedRecord,
  type RejectedRequest,
  type UsageRecord,
} from '#core/metering/records/records.ts';
import { createSpendingReports, deleteOldLatency, type SpendingReports } from '#core/metering/reports/reports.ts';
import {
  beginPartitions,
  dropOldPartitions,
  ensurePartitions,
  type KnownIds,
  packPartitions,
} from '#core/metering/tables/tables.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import { usedBy } from './bill.ts';
import { createReports, type Reports, type SettledRequest } from './reports.ts';

/**
 * The records of usage. While a stream passes, meters read the engine's own counts. When a request ends, its record,
 * the hourly sums and the wallet's ledger are written in one transaction, and only then may the response end. While
 * Postgres is unavailable or slow, records go to a spool on disk instead, and from there to Postgres.
 */
export interface Metering {
  /**
   * Writes a record, and resolves when it is durable. Repeating an id changes nothing.
   * @returns where the record is; for a `spooled` one, `onUnspooled` reports when it is in the database
   * @throws Postgres' error if the database permanently rejects this record: it is in quarantine, and nothing is
   *   charged
   */
  settle(record: UsageRecord): Promise<Durable>;
  /**
   * Returns the charge and tokens of a record in the database: less than the record's cost if some was written off
   * there.
   */
  booked(record: UsageRecord): SettledRequest;
  /** Calls a listener with spooled records once they are in the database, or permanently in quarantine. */
  onUnspooled(listener: UnspooledListener): void;
  /** Counts a rejected request, and keeps it if it is among the first of its minute; written within about a second. */
  countRefusal(request: RejectedRequest): void;
  /** False while a record could not be made durable in time: no request may be admitted then. */
  readonly healthy: boolean;
  /** False while Postgres accepts no writes. */
  readonly writable: boolean;
  /** Records that are not durable. */
  readonly pending: number;
  /** Milliseconds that the oldest record has waited to be durable; 0 if none waits. */
  readonly oldestPendingMs: number;
  /** Records that are in the spool and not in the database. */
  readonly spooled: number;
  readonly spooledBytes: number;
  /** Number of records that this process has put into quarantine. */
  readonly quarantined: number;
  readonly reports: Reports;
  /** Spending that budgets count. */
  readonly spending: SpendingReports;
  /** Creates the next months' partitions, and writes the records that earlier gateways left in the spool. */
  start(): Promise<void>;
  /** Writes records that were moved to the spool since the start. */
  replaySpool(): void;
  /** Creates the next months' partitions, and those of months with records but no partition; to be called daily. */
  ensurePartitions(): Promise<void>;
  /** Rebuilds the indexes of past months, which saves a fifth of the space of their records; to be called daily. */
  packPartitions(): Promise<void>;
  /** Drops the months of records that ended more than `days` ago; sums and the ledger are kept. */
  dropOldPartitions(days: number): Promise<number>;
  flushRefusals(): Promise<void>;
  /** Deletes rejected requests and histograms that are kept for long enough. */
  deleteOld(): Promise<void>;
  /** Returns the records that the database rejected, newest first. */
  listQuarantined(limit: number): Promise<readonly QuarantinedRecord[]>;
  /** Waits until everything is written, at most `timeoutMs`; spooled records stay in the spool. */
  close(timeoutMs: number): Promise<void>;
}

/**
 * Called with spooled records. @param isBooked true if they are in the database; else they are in quarantine, or were
 * discarded there, and nothing was charged
 */
export type UnspooledListener = (records: readonly UsageRecord[], isBooked: boolean) => void;

export interface MeteringOptions {
  readonly db: Db;
  /** Connections that only settlements use. */
  readonly books: DedicatedDb;
  readonly spool: Spool;
  readonly clock: Clock;
  readonly log: Log;
  readonly wallet: Wallet;
  /** Ids that usage may be stored for; absent: ids are not checked. */
  readonly ids?: KnownIds;
  /** Milliseconds for which the spool is enough while Postgres accepts nothing. */
  readonly staleMs: number;
  /** Milliseconds that a settlement waits for Postgres before it is spooled. */
  readonly spoolAfterMs: number;
  /** Called with every group commit: its number of records, and its duration with all tries. */
  readonly onCommit?: (records: number, durationMs: number) => void;
}

/** Limits of these statements, in milliseconds: a locked wallet delays its own organization, and no other. */
export const recordLimits = { lockTimeoutMs: 200, statementTimeoutMs: 5000, idleInTransactionTimeoutMs: 10_000 };

const batchMax = 500;
const retryDelayMs = 100;
const retryDelayMsMax = 1000;
const stallMs = 8000;
/** Milliseconds that a record waits for the spool, beyond the wait for Postgres, before new work is rejected. */
const pendingMsMax = 2000;
/** Number of records in the spool from which Postgres counts as unavailable if it answers but rejects them all. */
const refusedMax = 1000;
/** Maximum number of kept amounts. Callers ask for the charge of a record at once. */
const writtenOffMax = 10_000;
/** Milliseconds that a start waits for the records that earlier gateways left. */
const replayMsMax = 10_000;

interface CommitListeners {
  readonly onWrittenOff: (id: string, picoUsd: bigint) => void;
  readonly onDiscarded: (id: string) => void;
  readonly onUnspooled: UnspooledListener;
  readonly onQuarantined: () => void;
}

function createCommits(options: MeteringOptions, listeners: CommitListeners): GroupCommit<UsageRecord> {
  const { books, spool, clock, log, wallet, ids, spoolAfterMs, onCommit } = options;
  const writer = createWriter({ db: books, clock, wallet, ...(ids !== undefined && { ids }) });
  return createGroupCommit<UsageRecord>({
    ...(onCommit !== undefined && { onCommit }),
    log,
    clock,
    batchMax,
    retryDelayMs,
    retryDelayMsMax,
    spoolAfterMs,
    stallMs,
    spool,
    encode: (record) => encodeRecord(record, clock.monotonicMs()),
    describe: ({ claim: _claim, ...record }) => record,
    decode: decodeRecord,
    groupOf: ({ organizationId }) => organizationId,
    abandon: () => books.abandon(),
    async quarantine(record, data, error) {
      await insertQuarantined(books.sql, { record, data, error });
      listeners.onQuarantined();
    },
    onUnspooled: listeners.onUnspooled,
    async write(records) {
      const { writtenOff, discarded } = await writer.write(records);
      for (const id of discarded) listeners.onDiscarded(id);
      for (const [id, picoUsd] of writtenOff) listeners.onWrittenOff(id, picoUsd);
    },
  });
}

/** Amounts that the database wrote off, in pico-dollars, kept until a caller asks for the charge of the record. */
class WrittenOff {
  readonly #byId = new Map<string, bigint>();

  add(id: string, picoUsd: bigint): void {
    if (this.#byId.size >= writtenOffMax) this.#byId.clear();
    this.#byId.set(id, picoUsd);
  }

  take(id: string): bigint {
    const picoUsd = this.#byId.get(id) ?? 0n;
    this.#byId.delete(id);
    return picoUsd;
  }
}

/** Notifies listeners of the result of spooled records. */
class Unspooled {
  readonly #listeners: UnspooledListener[] = [];
  /** Records that the database skipped because an operator discarded them, until listeners are notified. */
  readonly #discarded = new Set<string>();

  listen(listener: UnspooledListener): void {
    this.#listeners.push(listener);
  }

  discard(id: string): void {
    this.#discarded.add(id);
  }

  notify(records: readonly UsageRecord[], isBooked: boolean): void {
    const discarded = records.filter(({ id }) => this.#discarded.delete(id));
    const rest = discarded.length === 0 ? records : records.filter((record) => !discarded.includes(record));
    for (const listener of this.#listeners) {
      if (discarded.length > 0) listener(discarded, false);
      if (rest.length > 0) listener(rest, isBooked);
    }
  }
}

/** Counts all rejected requests, and keeps some. */
function createRejections(parts: Pick<MeteringOptions, 'db' | 'clock' | 'log'>) {
  const counts = createRefusals(parts);
  const kept = createRejectedRequests(parts);
  return {
    count(request: RejectedRequest): void {
      counts.count(request);
      kept.add(request);
    },
    async flush(): Promise<void> {
      await counts.flush();
      await kept.flush();
    },
    deleteOld: () => kept.deleteOld(),
  };
}

async function deleteOldRows(
  { db, clock }: MeteringOptions,
  rejections: Pick<ReturnType<typeof createRejections>, 'deleteOld'>,
): Promise<void> {
  await rejections.deleteOld();
  await deleteOldLatency({ db, clock });
}

export function createMetering(options: MeteringOptions): Metering {
  const { db, clock, log, wallet, staleMs, spoolAfterMs } = options;
  const unspooled = new Unspooled();
  let quarantined = 0;
  const writtenOff = new WrittenOff();
  const commits = createCommits(options, {
    onUnspooled: (records, isBooked) => unspooled.notify(records, isBooked),
    onDiscarded: (id) => unspooled.discard(id),
    onQuarantined: () => void (quarantined += 1),
    onWrittenOff: (id, picoUsd) => writtenOff.add(id, picoUsd),
  });
  const rejections = createRejections({ db, clock, log });

  return {
    settle: (record) => commits.add(record),
    booked(record) {
      const { chargedPicoUsd, tokens } = usedBy(record);
      return { chargedPicoUsd: chargedPicoUsd - writtenOff.take(record.id), tokens };
    },
    onUnspooled: (listener) => unspooled.listen(listener),
    countRefusal: (request) => rejections.count(request),
    flushRefusals: () => rejections.flush(),
    deleteOld: () => deleteOldRows(options, rejections),
    async start() {
      await beginPartitions({ db, clock });
      commits.begin();
      await isLate(commits.idle(), replayMsMax);
    },
    replaySpool: () => commits.begin(),
    ensurePartitions: () => ensurePartitions({ db, clock }),
    packPartitions: () => packPartitions({ db, clock }),
    dropOldPartitions: (days) => dropOldPartitions({ db, clock }, days),
    listQuarantined: (limit) => listQuarantined(db.sql, limit),
    reports: createReports({ db, wallet }),
    spending: createSpendingReports(db),
    async close(timeoutMs) {
      const written = commits.idle().then(() => rejections.flush());
      // Records on disk need not wait for an unavailable Postgres: the next start writes them.
      const ended = new AbortController();
      await isLate(Promise.race([written, untilAllSpooled(commits, ended.signal)]), timeoutMs);
      ended.abort();
      await commits.stop();
    },
    get healthy() {
      if (commits.oldestPendingMs >= spoolAfterMs + pendingMsMax) return false;
      // One rejected record on a quiet day must not stop all requests: their records show that it is the only one.
      return commits.unavailableMs < staleMs || (commits.isRefused && commits.spooled < refusedMax);
    },
    get writable() {
      return commits.unavailableMs === 0;
    },
    get quarantined() {
      return quarantined;
    },
    get pending() {
      return commits.pending;
    },
    get oldestPendingMs() {
      return commits.oldestPendingMs;
    },
    get spooled() {
      return commits.spooled;
    },
    get spooledBytes() {
      return commits.spooledBytes;
    },
  };
}

/** Resolves when Postgres is known to be unavailable, and everything is on disk. */
async function untilAllSpooled(commits: GroupCommit<UsageRecord>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (commits.pending > 0 || commits.unavailableMs < retryDelayMsMax)) {
    await setTimeout(retryDelayMs, undefined, { ref: false });
  }
}

export { type Bill, billOf, nothingUsed, type Served, usedBy } from './bill.ts';
export {
  createWriter,
  type DetailedRecord,
  type Durable,
  type OutcomeKind,
  type QuarantinedRecord,
  type RejectedRequest,
  type UsageRecord,
  type Writer,
  type Written,
} from '#core/metering/records/records.ts';
export { isBeforeRetention, type KnownIds, type RequestFacts, type StoredFacts } from '#core/metering/tables/tables.ts';
export { createQuarantineReview, type QuarantineReview } from './quarantine-review.ts';
export {
  createHistory,
  summaryDimensions,
  timelineOf,
  type Busy,
  type Edge,
  type EdgeTokens,
  type EndedLater,
  type History,
  type LedgerDifference,
  type LedgerLine,
  type LedgerLines,
  type LedgerLinesRequest,
  type LedgerPosition,
  type RecordFilter,
  type RecordPage,
  type RejectedFilter,
  type RejectedPage,
  type ReplicaBusy,
  type Statement,
  type StatementUsage,
  type SummaryDimension,
  type SummaryGroup,
  type SummaryRow,
  type Timeline,
  type UsageHour,
  type UsageHours,
  type UsageSums,
  uncountedEndpoints,
} from '#core/metering/reports/reports.ts';
export type { Reports } from './reports.ts';
export {
  brokenMessage,
  brokenResponse,
  costOf,
  createMessagesMeter,
  createPiecesMeter,
  createRenderedPromptMeter,
  createResponsesMeter,
  createStreamMeter,
  messagesUsage,
  meterJson,
  meterRenderedPrompt,
  noText,
  noUsage,
  nothingSeen,
  openaiUsage,
  responsesUsage,
  type CountTerms,
  type JsonMeterOptions,
  type JsonMeterResult,
  type KnownUsage,
  type MeteredJson,
  type PiecesMeter,
  type PiecesMeterResult,
  type Seen,
  type ShownBill,
  type StreamFailure,
  type StreamMeter,
  type StreamMeterOptions,
  type Usage,
  type UsageSource,
  usageOf,
} from '#core/metering/meters/meters.ts';
export { type BooksFinding, type BooksProof, type ProvenLedger, verifyBooks } from '#core/metering/verify/verify.ts';
