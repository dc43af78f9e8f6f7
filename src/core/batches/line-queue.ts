import { and, asc, eq, gt } from 'drizzle-orm';
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

/** The requests of a batch that are not answered, in the order of its file; those that are asked again come first. */
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

export function createLineQueue(db: Db, batchId: string): LineQueue {
  const again: PendingLine[] = [];
  let read: PendingLine[] = [];
  let after = -1;
  let isRead = false;

  const pendingAfter = (number: number, limit: number) =>
    db.orm
      .select({ number: batchLines.number, bodyAt: batchLines.bodyAt, bodyBytes: batchLines.bodyBytes })
      .from(batchLines)
      .where(and(eq(batchLines.batchId, batchId), eq(batchLines.state, 'pending'), gt(batchLines.number, number)))
      .orderBy(asc(batchLines.number))
      .limit(limit);
  const readMore = async (): Promise<void> => {
    const rows = await pendingAfter(after, readAtOnce);
    read = rows.map((row) => ({ ...row, tries: 0, notBeforeMs: 0, isUnpaid: false }));
    after = rows.at(-1)?.number ?? after;
    isRead = rows.length < readAtOnce;
  };
  return {
    async next(nowMs) {
      const due = again.findIndex(({ notBeforeMs }) => notBeforeMs <= nowMs);
      if (due !== -1) return again.splice(due, 1)[0] ?? null;
      if (read.length === 0 && !isRead) await readMore();
      return read.shift() ?? null;
    },
    again: (line) => void again.push(line),
    get isEmpty() {
      return isRead && read.length === 0 && again.length === 0;
    },
    get isUnpaid() {
      return isRead && read.length === 0 && again.length > 0 && again.every((line) => line.isUnpaid);
    },
    isAllAnswered: async () => (await pendingAfter(-1, 1)).length === 0,
  };
}
