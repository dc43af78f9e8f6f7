import { sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { type Claim, type Claims, LostClaimError } from './claims.ts';

/** Result of one request of a batch. */
export interface Note {
  readonly number: number;
  readonly state: 'completed' | 'failed';
  readonly requestId: string;
  readonly statusCode: number;
  /** Answer compressed with Zstandard. */
  readonly answer: Buffer;
}

/** Writes results of requests, one statement at a time; results that arrive meanwhile are in the next statement. */
export interface Notes {
  /** Number of results not written yet. */
  readonly pending: number;
  add(note: Note): void;
  /** Waits until everything is written. @throws LostClaimError, and errors of the database; can be called again */
  flush(): Promise<void>;
}

const writtenAtOnce = 200;
const writtenBytesMax = 8_388_608;

export interface NotesParts {
  readonly db: Db;
  readonly claims: Claims;
}

export function createNotes(parts: NotesParts, claim: Claim, onFailed: (error: unknown) => void): Notes {
  const notes: Note[] = [];
  let writing: Promise<void> | null = null;

  const writeAll = async (): Promise<void> => {
    while (notes.length > 0) {
      const some = take(notes);
      await write(parts, claim, some);
      notes.splice(0, some.length);
    }
  };
  const flush = (): Promise<void> => {
    writing ??= writeAll().finally(() => (writing = null));
    return writing;
  };
  return {
    get pending() {
      return notes.length;
    },
    add(note) {
      notes.push(note);
      flush().catch(onFailed);
    },
    async flush() {
      while (notes.length > 0 || writing !== null) await flush();
    },
  };
}

function take(notes: readonly Note[]): readonly Note[] {
  let bytes = 0;
  const end = notes.findIndex(({ answer }, index) => {
    bytes += answer.length;
    return index > 0 && (index >= writtenAtOnce || bytes > writtenBytesMax);
  });
  return notes.slice(0, end === -1 ? notes.length : end);
}

/**
 * Writes results in one statement. A request that already has a result keeps it, and is counted once. A single
 * statement, because a gateway that is frozen between statements would hold locks that others wait for.
 */
async function write({ db, claims }: NotesParts, claim: Claim, notes: readonly Note[]): Promise<void> {
  const { id } = claim.batch;
  const rows = JSON.stringify(
    notes.map(({ number, state, requestId, statusCode, answer }) => ({
      number,
      state,
      request_id: requestId,
      status_code: statusCode,
      answer: answer.toString('base64'),
    })),
  );
  const counted = await db.orm.execute(sql`
    with held as materialized (${claims.held(claim)}), written as (
      update batch_lines l set state = t.state, request_id = t.request_id, status_code = t.status_code,
        answer = decode(t.answer, 'base64')
      from json_to_recordset(${rows}::text::json)
        as t(number int, state text, request_id text, status_code int, answer text)
      where l.batch_id = (select id from held) and l.number = t.number and l.state = 'pending'
      returning l.state
    )
    update batches set waiting_for = null, waiting_since = null,
      completed = completed + (select count(*)::int from written where state = 'completed'),
      failed = failed + (select count(*)::int from written where state = 'failed')
    where id = (select id from held) returning id`);
  if (counted.length === 0) throw new LostClaimError(id);
}
