import { eq, sql } from 'drizzle-orm';
import type { Claim, Claims } from './claims.ts';
import { batches, waitsForNothing } from './schema.ts';

/** What came of one request of a batch. */
export interface Note {
  readonly number: number;
  readonly state: 'completed' | 'failed';
  readonly requestId: string;
  readonly statusCode: number;
  /** Compressed with Zstandard. */
  readonly answer: Buffer;
}

/** Writes down what came of requests: one statement runs, and what comes meanwhile is of the next one. */
export interface Notes {
  /** Not written yet. */
  readonly pending: number;
  add(note: Note): void;
  /** Waits until everything is written. @throws LostClaimError, and what the database throws; it may be tried again */
  flush(): Promise<void>;
}

const writtenAtOnce = 200;
const writtenBytesMax = 8_388_608;

export function createNotes(claims: Claims, claim: Claim, onFailed: (error: unknown) => void): Notes {
  const notes: Note[] = [];
  let writing: Promise<void> | null = null;

  const writeAll = async (): Promise<void> => {
    while (notes.length > 0) {
      const some = take(notes);
      await write(claims, claim, some);
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

/** A request that has been noted before stays so: it is counted once. */
async function write(claims: Claims, claim: Claim, notes: readonly Note[]): Promise<void> {
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
  await claims.during(claim, async (tx) => {
    const written = await tx.execute<{ state: Note['state'] }>(sql`
      update batch_lines l set state = t.state, request_id = t.request_id, status_code = t.status_code,
        answer = decode(t.answer, 'base64')
      from json_to_recordset(${rows}::text::json)
        as t(number int, state text, request_id text, status_code int, answer text)
      where l.batch_id = ${id} and l.number = t.number and l.state = 'pending'
      returning l.state`);
    const completed = written.filter(({ state }) => state === 'completed').length;
    const failed = written.length - completed;
    await tx
      .update(batches)
      .set({
        completed: sql`${batches.completed} + ${completed}`,
        failed: sql`${batches.failed} + ${failed}`,
        ...waitsForNothing,
      })
      .where(eq(batches.id, id));
  });
}
