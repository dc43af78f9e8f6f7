import { type Db, sqlStateOf } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { type ConcurrencyBounds, ConcurrencyLimit, NoSlotError } from '#base/queues/queues.ts';
import type { DetailedRecord, UsageRecord } from '#core/metering/records/records.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import { type Busy, readBusy } from './busy.ts';
import { type LedgerLines, type LedgerLinesRequest, readLedgerLines } from './ledger-lines.ts';
import {
  listRecords,
  pageOfAll,
  readRecord,
  type RecordFilter,
  type RecordPage,
  type RecordRef,
} from './record-list.ts';
import { listRejected, type RejectedFilter, type RejectedPage } from './rejected-list.ts';
import { readStatement, type Statement, type StatementRequest } from './statement.ts';
import { summarize, type Summary, type SummaryRequest } from './summary.ts';

/** Number and cost of an organization's requests. */
interface Spending {
  readonly requests: number;
  readonly costPicoUsd: bigint;
}

/**
 * Returns the spending by organization (UUID), from the daily sums: one sum for each start, in their order; none for an
 * organization without requests since the earliest start.
 * @param sinceMs starts of UTC days, milliseconds since the Unix epoch
 */
async function readSpending(
  { sql }: Db,
  sinceMs: readonly number[],
): Promise<ReadonlyMap<string, readonly Spending[]>> {
  const days = sinceMs.map((ms) => new Date(ms).toISOString().slice(0, 10));
  const first = days.toSorted()[0];
  if (first === undefined) return new Map();
  // Steps from one organization to the next by the primary key, and there reads its days: years of others are not read.
  const rows = await sql<{ id: string; start: string; requests: string; cost: string }[]>`
    WITH RECURSIVE seen AS (
      (SELECT organization FROM usage_daily ORDER BY organization LIMIT 1)
      UNION ALL
      SELECT (SELECT organization FROM usage_daily WHERE organization > seen.organization ORDER BY organization LIMIT 1)
      FROM seen WHERE organization IS NOT NULL
    ), sums AS MATERIALIZED (
      SELECT seen.organization, own.day, own.requests, own.cost FROM seen CROSS JOIN LATERAL (
        SELECT day, sum(requests) AS requests, sum(cost) AS cost FROM usage_daily
        WHERE organization = seen.organization AND day >= ${first}::date GROUP BY day
      ) own
    )
    SELECT i.id::text, d.start::text, sum(s.requests)::text AS requests, sum(s.cost)::text AS cost
    FROM sums s
      JOIN usage_ids i ON i.code = s.organization
      JOIN unnest(${`{${days.join(',')}}`}::date[]) AS d (start) ON s.day >= d.start
    GROUP BY i.id, d.start`;
  const byId = Map.groupBy(rows, ({ id }) => id);
  return new Map(
    [...byId].map(([id, sums]) => [
      id,
      days.map((day) => {
        const sum = sums.find(({ start }) => start === day);
        return { requests: Number(sum?.requests ?? 0), costPicoUsd: BigInt(sum?.cost ?? 0) };
      }),
    ]),
  );
}

/** Reads the past for callers: single requests, newest admission first, sums over any span of time, the ledger. */
export interface History {
  listRecords(filter: RecordFilter): Promise<RecordPage>;
  /** Reads all matching records, newest admission first, a page at a time; no connection is held between pages. */
  readAllRecords(filter: Omit<RecordFilter, 'limit'>): AsyncGenerator<readonly UsageRecord[]>;
  /** Returns null if the organization (or the key, if one is given) has no such request. */
  readRecord(ref: RecordRef): Promise<DetailedRecord | null>;
  /** Lists rejected requests; only the first of each minute are kept, for some days. */
  listRejected(filter: RejectedFilter): Promise<RejectedPage>;
  summarize(request: SummaryRequest): Promise<Summary>;
  /** Returns an organization's ledger, with a line per request as long as there are records. */
  ledgerLines(organizationId: string, request: LedgerLinesRequest): Promise<LedgerLines>;
  statement(request: StatementRequest): Promise<Statement>;
  /** Returns the spending of all organizations, by their UUIDs: one sum since each of these starts of UTC days. */
  spending(sinceMs: readonly number[]): Promise<ReadonlyMap<string, readonly Spending[]>>;
  /** Returns the time in which each replica had requests, over all organizations. */
  busy(span: { readonly fromMs: number; readonly toMs: number }): Promise<Busy>;
  /**
   * Runs another read on the same connections, in the queue of an organization; null for all organizations.
   * @param read gets these connections
   */
  during<T>(organizationId: string | null, read: (db: Db) => Promise<T>): Promise<T>;
}

export interface HistoryOptions {
  /** Connections that only history uses, whose statements have a time limit. */
  readonly db: Db;
  /** Reads the ledger on these connections. */
  readonly wallet: Pick<Wallet, 'ledger' | 'ledgerSpan'>;
  /** Number of connections. */
  readonly connections: number;
  readonly waitMsMax: number;
}

/** Maximum number of waiting reads, of all organizations and of one. */
const waitingMax = 500;
const waitingPerOrganizationMax = 100;

/** Returns the bounds: if there are several connections, one organization can use all except one. */
const boundsOf = ({ connections, waitMsMax }: HistoryOptions): ConcurrencyBounds => ({
  atOnceMax: connections,
  atOncePerNameMax: Math.max(1, connections - 1),
  waitingMax,
  waitingPerNameMax: waitingPerOrganizationMax,
  waitMsMax,
});

/**
 * History on its own connections, where organizations take turns: an organization that reads much delays only itself.
 *
 * Rejections are an AppError: `overloaded` with Retry-After if a read waits or runs too long, and TooManyWaitError if
 * an organization has too many waiting reads.
 */
export function createHistory(options: HistoryOptions): History {
  const { db, wallet } = options;
  const connectionLimit = new ConcurrencyLimit(boundsOf(options));
  const during = async <T>(name: string, run: () => Promise<T>, isBegun = false): Promise<T> => {
    try {
      return await connectionLimit.during(name, run, { isBegun });
    } catch (error) {
      throw toRefusal(error);
    }
  };
  return {
    listRecords: (filter) => during(filter.organizationId, () => listRecords(db, filter)),
    async *readAllRecords(filter) {
      let page: RecordPage = { records: [], more: true };
      let before = filter.before;
      for (let isBegun = false; page.more; isBegun = true) {
        const rest = { ...filter, before };
        page = await during(filter.organizationId, () => pageOfAll(db, rest), isBegun);
        before = page.records.at(-1)?.id ?? null;
        if (page.records.length > 0) yield page.records;
      }
    },
    readRecord: (ref) => during(ref.organizationId, () => readRecord(db, ref)),
    listRejected: (filter) => during(filter.organizationId, () => listRejected(db, filter)),
    summarize: (request) => during(request.organizationId ?? ofAll, () => summarize(db, request)),
    ledgerLines: (organizationId, request) =>
      during(organizationId, () => readLedgerLines({ db, wallet }, organizationId, request)),
    statement: (request) => during(request.organizationId, () => readStatement({ db, wallet }, request)),
    spending: (sinceMs) => during(ofAll, () => readSpending(db, sinceMs)),
    busy: (span) => during(ofAll, () => readBusy(db, span)),
    during: (organizationId, read) => during(organizationId ?? ofAll, () => read(db)),
  };
}

/** Name under which reports over all organizations take their turns. */
const ofAll = '';

const queryCanceled = '57014';

function toRefusal(error: unknown): unknown {
  if (error instanceof NoSlotError) {
    const message = 'Too many reports are running. Try again shortly.';
    return new AppError('overloaded', { message, headers: { 'retry-after': '5' }, cause: error });
  }
  if (sqlStateOf(error) !== queryCanceled) return error;
  const message = 'This report took too long. Request a shorter period with "from" and "to", or try again later.';
  return new AppError('overloaded', { message, headers: { 'retry-after': '5' }, cause: error });
}
