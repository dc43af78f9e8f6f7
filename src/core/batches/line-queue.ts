import { and, asc, between, eq } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { batchLines } from './schema.ts';

/** A request that is to be asked. */
export interface PendingLine {
  readonly number: number;
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** Times that it was asked, and may itself have been at fault. */
  readonly tries: number;
  /** It is not asked before: milliseconds since the Unix epoch. */
  readonly notBeforeMs: number;
  /** It was refused for lack of money when it was last asked. */
  readonly isUnpaid: boolean;
}

/**
 * The requests of a batch that are not answered, in the order of its file. Those that are asked again come first, and
 * those that were refused for lack of money last.
 */
export interface LineQueue {
  /** The next one that may be asked; null where there is none now. */
  next(nowMs: number): Promise<PendingLine | null>;
  /** Takes one that `next` gave back: nothing came of it. */
  again(line: PendingLine): void;
  /** Whether all were given, and none came back. */
  readonly isEmpty: boolean;
  /** True when only lines that were refused for lack of money are left. */
  readonly isUnpaid: boolean;
  /** Whether no request of the batch is without an answer, as the database has it: what is not is dropped for good. */
  isAllAnswered(): Promise<boolean>;
}

const readAtOnce = 200;
/** More than any file has. */
const numberMax = 2_147_483_647;

/** @param startAt number of the line that comes first; those before it follow after the last one */
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
