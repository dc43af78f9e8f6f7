import { and, asc, between, eq } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { batchLines } from './schema.ts';

/** A request to be sent. */
export interface PendingLine {
  readonly number: number;
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** Attempts that failed possibly because of the request itself. */
  readonly tries: number;
  /** Earliest time of the next attempt, in milliseconds since the Unix epoch. */
  readonly notBeforeMs: number;
  /** True if the last attempt was rejected for lack of money. */
  readonly isUnpaid: boolean;
}

/**
 * Queue of a batch's unanswered requests, in the order of the file. Requests to be sent again come first, those
 * rejected for lack of money last.
 */
export interface LineQueue {
  /** Returns the next request that may be sent; null if there is none now. */
  next(nowMs: number): Promise<PendingLine | null>;
  /** Puts back a request from `next` that got no answer to record. */
  again(line: PendingLine): void;
  /** True if all requests were returned by `next` and none was put back. */
  readonly isEmpty: boolean;
  /** True if only requests rejected for lack of money are left. */
  readonly isUnpaid: boolean;
  /**
   * True if every request of the batch has an answer in the database. Checked before the end, which drops unanswered
   * requests.
   */
  isAllAnswered(): Promise<boolean>;
}

const readAtOnce = 200;
/** Larger than any line number. */
const numberMax = 2_147_483_647;

/** @param startAt number of the first line; the lines before it follow after the last one */
export function createLineQueue(db: Db, batchId: string, startAt: number): LineQueue {
  const again: PendingLine[] = [];
  let read: PendingLine[] = [];
  /** Ranges of line numbers that are not read yet, both ends included. */
  const unread = [
    { first: startAt, last: numberMax },
    { first: 0, last: startAt - 1 },
  ];

  const pendingIn = ({ first, last }: { first: number; last: number }, limit: number) =>
    db.orm
      .select({ number: batchLines.number, bodyAt: batchLines.bodyAt, bodyBytes: batchLines.bodyBytes })
      .from(batchLines)
      .where(
        and(eq(batchLines.batchId, batchId), eq(batchLines.state, 'pending'), between(batchLines.number, first, last)),
      )
      .orderBy(asc(batchLines.number))
      .limit(limit);
  const readMore = async (): Promise<void> => {
    const [part] = unread;
    if (part === undefined) return;
    const rows = await pendingIn(part, readAtOnce);
    read = rows.map((row) => ({ ...row, tries: 0, notBeforeMs: 0, isUnpaid: false }));
    part.first = (rows.at(-1)?.number ?? part.last) + 1;
    if (rows.length < readAtOnce) unread.shift();
  };
  const takeAgain = (nowMs: number, isUnpaid: boolean): PendingLine | null => {
    const due = again.findIndex((line) => line.notBeforeMs <= nowMs && line.isUnpaid === isUnpaid);
    return due === -1 ? null : (again.splice(due, 1)[0] ?? null);
  };
  const isRead = (): boolean => unread.length === 0 && read.length === 0;
  return {
    async next(nowMs) {
      const due = takeAgain(nowMs, false);
      if (due !== null) return due;
      while (read.length === 0 && unread.length > 0) await readMore();
      return read.shift() ?? takeAgain(nowMs, true);
    },
    again: (line) => void again.push(line),
    get isEmpty() {
      return isRead() && again.length === 0;
    },
    get isUnpaid() {
      return isRead() && again.length > 0 && again.every((line) => line.isUnpaid);
    },
    isAllAnswered: async () => (await pendingIn({ first: 0, last: numberMax }, 1)).length === 0,
  };
}
