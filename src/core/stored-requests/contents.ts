import { and, eq, gte, inArray, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { decompress } from './compress.ts';
import { ContentWriter, type NewContent } from './content-writer.ts';
import { requestContents } from './schema.ts';

/** Body and answer of one request. */
export interface Content {
  /** UTF-8 texts as they were sent, without the part that was cut off. */
  readonly request: string;
  readonly response: string;
  readonly requestTruncated: boolean;
  readonly responseTruncated: boolean;
}

/** A request that a caller may see. `keyIds` null: any key of the organization. */
export interface ContentRef {
  readonly organizationId: string;
  readonly keyIds: readonly string[] | null;
  readonly requestId: string;
}

/**
 * Stored bodies and answers of requests, for keys that enable storing. Their size and age are limited, and callers can
 * delete them.
 */
export interface Contents {
  /** Maximum stored bytes of one body. */
  readonly bodyBytesMax: number;
  /** Writes in the background. Bodies that arrive faster than they can be written are dropped, with a log line. */
  add(content: NewContent): void;
  read(ref: ContentRef): Promise<Content | null>;
  /** @returns false if nothing is stored */
  remove(ref: ContentRef, author: Author): Promise<boolean>;
  /** Deletes bodies that are too old, one batch at a time. */
  deleteOld(): Promise<void>;
  /** Waits until everything is written, at most `timeoutMs`. */
  close(timeoutMs: number): Promise<void>;
}

export interface ContentsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly ageMaxMs: number;
  readonly bodyBytesMax: number;
  /** Runs reads for an organization, on the connections for callers' reads. */
  readonly during: <T>(organizationId: string, run: (db: Db) => Promise<T>) => Promise<T>;
}

const deleteBatch = 500;

export function createContents(options: ContentsOptions): Contents {
  const { db, clock, log, audit, ageMaxMs, bodyBytesMax, during } = options;
  const writer = new ContentWriter({ db, log, bodyBytesMax });
  const oldest = (): string => uuidLowerBound(clock.now() - ageMaxMs);
  const matches = ({ organizationId, keyIds, requestId }: ContentRef) =>
    and(
      eq(requestContents.requestId, requestId),
      gte(requestContents.requestId, oldest()),
      eq(requestContents.organizationId, organizationId),
      ...(keyIds === null ? [] : [inArray(requestContents.keyId, [...keyIds])]),
    );

  return {
    bodyBytesMax,
    add: (content) => writer.add(content),
    async read(ref) {
      await writer.written(ref.requestId);
      const [row] = await during(ref.organizationId, (reports) =>
        reports.orm.select().from(requestContents).where(matches(ref)),
      );
      if (row === undefined) return null;
      const { request, response, requestTruncated, responseTruncated } = row;
      return { request: await unpack(request), response: await unpack(response), requestTruncated, responseTruncated };
    },
    async remove(ref, author) {
      await writer.written(ref.requestId);
      return db.orm.transaction(async (tx) => {
        const [row] = await tx.delete(requestContents).where(matches(ref)).returning({ id: requestContents.requestId });
        if (row === undefined) return false;
        await audit.record(tx, {
          organizationId: ref.organizationId,
          author,
          action: 'usage_content.deleted',
          targetType: 'usage_content',
          targetId: row.id,
          before: { request_id: row.id },
          after: null,
        });
        return true;
      });
    },
    async deleteOld() {
      for (let deleted = deleteBatch; deleted === deleteBatch;) {
        const old = db.orm
          .select({ id: requestContents.requestId })
          .from(requestContents)
          .where(lt(requestContents.requestId, oldest()))
          .orderBy(requestContents.requestId)
          .limit(deleteBatch);
        const rows = await db.orm
          .delete(requestContents)
          .where(inArray(requestContents.requestId, old))
          .returning({ id: requestContents.requestId });
        deleted = rows.length;
      }
    },
    close: (timeoutMs) => writer.close(timeoutMs),
  };
}

/** Decompresses a text. A text that was cut may end in half a character, which is removed. */
async function unpack(bytes: Buffer): Promise<string> {
  return (await decompress(bytes)).toString('utf8').replace(/\ufffd$/, '');
}
