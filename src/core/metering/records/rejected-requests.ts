import { lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { rejectedRequests } from '#core/metering/schema.ts';

/** A rejected request, with the error that its client got. */
export interface RejectedRequest {
  /** UUIDv7, the `x-request-id`. */
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  /** Catalog id, or '' if the request was rejected before its model was known. */
  readonly model: string;
  /** Path of the request. */
  readonly endpoint: string;
  readonly status: number;
  readonly code: string;
  /** The field at fault; null if the error names none. */
  readonly param: string | null;
  readonly message: string;
  readonly clientRequestId: string | null;
  /** The end user as the request names them; null if it names none, or was rejected before it was read. */
  readonly endUser: string | null;
}

/** Rows that one gateway keeps of an organization's rejected requests in a minute: a flood must not fill a disk. */
export const keptPerMinute = 30;
/** Days for which they are kept. */
const rejectedDays = 7;

const minuteMs = 60_000;
const dayMs = 86_400_000;
const messageLengthMax = 500;
/** Maximum number of rows in memory while PostgreSQL is unavailable. */
const waitingMax = 10_000;

/** PostgreSQL's text has no NUL. */
const stored = (text: string): string => text.slice(0, messageLengthMax).replaceAll('\0', '\u{FFFD}');

/** Writes the first rejected requests of each minute and organization in the background. */
export interface RejectedRequests {
  add(request: RejectedRequest): void;
  /** Does not throw: rows that cannot be written wait for the next call. */
  flush(): Promise<void>;
  deleteOld(): Promise<void>;
}

export function createRejectedRequests({ db, clock, log }: { db: Db; clock: Clock; log: Log }): RejectedRequests {
  let waiting: RejectedRequest[] = [];
  let minute = 0;
  const keptInMinute = new Map<string, number>();
  return {
    add(request) {
      const now = Math.floor(clock.now() / minuteMs);
      if (now !== minute) keptInMinute.clear();
      minute = now;
      const kept = keptInMinute.get(request.organizationId) ?? 0;
      if (kept >= keptPerMinute || waiting.length >= waitingMax) return;
      keptInMinute.set(request.organizationId, kept + 1);
      const { param, message } = request;
      waiting.push({ ...request, param: param === null ? null : stored(param), message: stored(message) });
    },
    async flush() {
      if (waiting.length === 0) return;
      const rows = waiting;
      waiting = [];
      try {
        await db.orm.insert(rejectedRequests).values(rows).onConflictDoNothing();
      } catch (error) {
        log.warn({ err: error }, 'rejected requests could not be written to PostgreSQL; the next attempt writes them');
        waiting = [...rows, ...waiting];
      }
    },
    async deleteOld() {
      const bound = uuidLowerBound(clock.now() - rejectedDays * dayMs);
      await db.orm.delete(rejectedRequests).where(lt(rejectedRequests.id, bound));
    },
  };
}
