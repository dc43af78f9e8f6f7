import { and, asc, eq, gt } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import type { Files, FileWriter } from '#core/files/files.ts';
import { decompress } from '#core/stored-requests/stored-requests.ts';
import type { Batch, BatchEnding } from './batch.ts';
import { batchLines } from './schema.ts';

/** Writes the files of an ended batch: each request is in one of them. */

export interface OutputParts {
  readonly db: Db;
  readonly files: Files;
}

/** Files that are written but not visible yet; null for a file that would be empty. */
export interface Output {
  readonly answers: FileWriter | null;
  readonly errors: FileWriter | null;
  abort(): Promise<void>;
}

type LineRow = typeof batchLines.$inferSelect;

const readAtOnce = 100;
const codesOfRest: Readonly<Record<BatchEnding, { readonly code: string; readonly message: string }>> = {
  completed: { code: 'internal_error', message: 'This request was not run.' },
  expired: {
    code: 'batch_expired',
    message: 'This request could not be executed before the completion window expired.',
  },
  cancelled: { code: 'batch_cancelled', message: 'The batch was cancelled before this request was executed.' },
  failed: { code: 'batch_failed', message: 'The batch failed before this request was executed.' },
};

/** Writes the answers from the rows of the batch's requests, some rows at a time. */
export async function writeOutput({ db, files }: OutputParts, batch: Batch, ending: BatchEnding): Promise<Output> {
  const written: { answers: FileWriter | null; errors: FileWriter | null } = { answers: null, errors: null };
  const begin = (): Promise<FileWriter> =>
    files.create(
      {
        organizationId: batch.organizationId,
        projectId: batch.projectId,
        keyId: batch.keyId,
        purpose: 'batch_output',
        keepSeconds: batch.outputKeepSeconds,
        bytesMax: Number.MAX_SAFE_INTEGER,
      },
      false,
    );
  const abort = async (): Promise<void> => {
    await written.answers?.abort();
    await written.errors?.abort();
  };
  const rest = restOf(batch, ending);
  try {
    for (let after = -1, more = true; more;) {
      const rows = await db.orm
        .select()
        .from(batchLines)
        .where(and(eq(batchLines.batchId, batch.id), gt(batchLines.number, after)))
        .orderBy(asc(batchLines.number))
        .limit(readAtOnce);
      for (const row of rows) {
        const which = row.state === 'completed' ? 'answers' : 'errors';
        const writer = (written[which] ??= await begin());
        await writer.add(await lineOf(batch, row, rest));
      }
      more = rows.length === readAtOnce;
      after = rows.at(-1)?.number ?? after;
      // One of the two files may get nothing for as long as the other takes.
      await Promise.all([written.answers?.renew(), written.errors?.renew()]);
    }
    await written.answers?.flush();
    await written.errors?.flush();
  } catch (error) {
    await abort();
    throw error;
  }
  return { ...written, abort };
}

function restOf({ errors }: Batch, ending: BatchEnding): { readonly code: string; readonly message: string } {
  const [first] = errors;
  return ending === 'failed' && first !== undefined ? first : codesOfRest[ending];
}

/**
 * Returns a line in OpenAI's format. The answer is inserted as received, on one line: in JSON, line ends outside
 * strings are white space.
 */
async function lineOf(
  batch: Batch,
  { number, customId, state, requestId, statusCode, answer }: LineRow,
  { code, message }: { readonly code: string; readonly message: string },
): Promise<Buffer> {
  const id = `batch_req_${batch.id.replaceAll('-', '')}_${number}`;
  const head = `{"id":${JSON.stringify(id)},"custom_id":${JSON.stringify(customId)},"response":`;
  if (state === 'pending' || answer === null) {
    return Buffer.from(`${head}null,"error":${JSON.stringify({ code, message })}}\n`);
  }
  const body = (await decompress(answer)).toString('utf8').replaceAll(/[\r\n]+/g, ' ');
  const response = `{"status_code":${statusCode ?? 0},"request_id":${JSON.stringify(requestId)},"body":${body}}`;
  return Buffer.from(`${head}${response},"error":null}\n`);
}

export const fileName = (batch: Batch, kind: 'output' | 'error'): string =>
  `batch_${batch.id.replaceAll('-', '')}_${kind}.jsonl`;
