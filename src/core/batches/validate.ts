import { eq } from 'drizzle-orm';
import type { Files } from '#core/files/files.ts';
import type { Asking, BatchKey } from './dependencies.ts';
import type { BatchError } from './batch.ts';
import type { Claim, Claims } from './claims.ts';
import { type LineProblem, readLine } from './read-line.ts';
import { batchLines } from './schema.ts';

/** A line of a file with its offset and its bytes without the line end; the bytes are null if the line is too long. */
interface FileLine {
  /** Line number from 1. */
  readonly number: number;
  readonly at: number;
  readonly bytes: Buffer | null;
}

const newline = 0x0a;
const carriageReturn = 0x0d;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

const withoutReturn = (bytes: Buffer): Buffer =>
  bytes.at(-1) === carriageReturn ? bytes.subarray(0, bytes.length - 1) : bytes;

/**
 * Splits a file into lines while reading. Only one line is in memory, and never more than its limit.
 * @param lineBytesMax longer lines are returned without their bytes
 */
async function* splitLines(chunks: AsyncIterable<Buffer>, lineBytesMax: number): AsyncGenerator<FileLine, void> {
  let parts: Buffer[] = [];
  let length = 0;
  let isTooLong = false;
  let at = 0;
  let number = 0;
  const take = (bytes: Buffer): void => {
    length += bytes.length;
    isTooLong ||= length > lineBytesMax;
    if (isTooLong) parts = [];
    else parts.push(bytes);
  };
  const end = (): FileLine => {
    number += 1;
    const whole = Buffer.concat(parts);
    const skipped = number === 1 && whole.subarray(0, 3).equals(byteOrderMark) ? 3 : 0;
    const line = { number, at: at + skipped, bytes: isTooLong ? null : withoutReturn(whole.subarray(skipped)) };
    at += length;
    parts = [];
    length = 0;
    isTooLong = false;
    return line;
  };
  for await (const chunk of chunks) {
    let from = 0;
    for (let to = chunk.indexOf(newline); to !== -1; to = chunk.indexOf(newline, from)) {
      take(chunk.subarray(from, to));
      yield end();
      at += 1;
      from = to + 1;
    }
    // Copied, so that the rest of the chunk can be freed.
    if (from < chunk.length) take(Buffer.from(chunk.subarray(from)));
  }
  if (length > 0) yield end();
}

export interface ValidateParts {
  readonly claims: Claims;
  readonly files: Files;
  readonly asking: Asking;
  readonly linesMax: number;
  readonly bodyBytesMax: number;
}

/** Errors of a file, or the one model of all its requests. */
export type Validated =
  | { readonly ok: true; readonly model: string; readonly total: number }
  | { readonly ok: false; readonly errors: readonly BatchError[] };

/** Most errors reported for one batch; further ones are left out. */
const errorsMax = 100;
const insertedAtOnce = 1000;
/** Most bytes of a line beside its body. */
const aroundBytesMax = 8192;
/** Bytes read, or one line, before the event loop gets a turn. */
const turnBytes = 1_048_576;
/** Cost of a line beyond its length, in bytes: a file may consist of line ends. */
const lineCostBytes = 256;

type LineRow = typeof batchLines.$inferInsert;

/**
 * Reads the file of a batch and stores the places of its requests. Rows written by a previous gateway are replaced.
 * @param isWanted called during the read; false stops the read as if the file ended there
 * @throws LostClaimError
 */
export async function validateFile(
  parts: ValidateParts,
  claim: Claim,
  key: BatchKey,
  isWanted: () => boolean,
): Promise<Validated> {
  const { claims, files, bodyBytesMax } = parts;
  const { batch } = claim;
  const reading = new Reading(parts, claim, key);
  await claims.during(claim, (tx) => tx.delete(batchLines).where(eq(batchLines.batchId, batch.id)));
  let rows: LineRow[] = [];
  let bytes = 0;
  const write = async (): Promise<void> => {
    const written = rows;
    rows = [];
    if (written.length > 0) await claims.during(claim, (tx) => tx.insert(batchLines).values(written));
  };
  for await (const line of splitLines(files.read(batch.inputFileId), bodyBytesMax + aroundBytesMax)) {
    if (!isBlank(line.bytes)) {
      const row = await reading.read(line);
      if (row !== null) rows.push(row);
    }
    if (reading.isOver || !isWanted()) break;
    if (rows.length >= insertedAtOnce) await write();
    bytes += (line.bytes?.length ?? 0) + lineCostBytes;
    if (bytes < turnBytes) continue;
    bytes = 0;
    await new Promise((resolve) => setImmediate(resolve));
  }
  reading.end();
  const { errors, model, total } = reading;
  if (errors.length > 0 || model === null) return { ok: false, errors: errors.slice(0, errorsMax) };
  await write();
  return { ok: true, model, total };
}

/**
 * Replaces characters that PostgreSQL's JSON cannot store, NUL and half surrogate pairs: a message may quote the file.
 */
const storable = (message: string): string => message.replaceAll('\0', '\ufffd').toWellFormed();

/** True for the nearly empty lines that editors leave behind, which are short. */
const isBlank = (bytes: Buffer | null): boolean =>
  bytes !== null && bytes.length <= 64 && /^[ \t]*$/.test(bytes.toString('latin1'));

const empty: LineProblem = { code: 'empty_file', message: 'The file has no requests.', param: 'input_file_id' };

const engineTools: LineProblem = {
  code: 'unsupported_parameter',
  message: 'Built-in tools are not supported in a batch. Send this request separately.',
  param: 'body.tools',
};

const tooMany = (linesMax: number): LineProblem => ({
  code: 'too_many_tasks',
  message: `The file has more than ${linesMax} requests. Split it into several batches.`,
  param: 'input_file_id',
});

class Reading {
  readonly errors: BatchError[] = [];
  model: string | null = null;
  total = 0;
  readonly #parts: ValidateParts;
  readonly #claim: Claim;
  readonly #key: BatchKey;
  readonly #customIds = new Set<string>();

  constructor(parts: ValidateParts, claim: Claim, key: BatchKey) {
    this.#parts = parts;
    this.#claim = claim;
    this.#key = key;
  }

  /** True if no more lines need to be read. */
  get isOver(): boolean {
    return this.errors.length >= errorsMax || this.total > this.#parts.linesMax;
  }

  end(): void {
    const { linesMax } = this.#parts;
    if (this.total > linesMax) this.refuse(null, tooMany(linesMax));
    if (this.total === 0) this.refuse(null, empty);
  }

  refuse(line: number | null, { code, message, param }: LineProblem): null {
    this.errors.push({ code, message: storable(message), param, line });
    return null;
  }

  async read({
    number,
    at,
    bytes,
  }: {
    readonly number: number;
    readonly at: number;
    readonly bytes: Buffer | null;
  }): Promise<LineRow | null> {
    const { batch } = this.#claim;
    const { bodyBytesMax } = this.#parts;
    this.total += 1;
    const tooLong = { code: 'line_too_long', message: `A body may have at most ${bodyBytesMax} bytes.`, param: null };
    if (bytes === null) return this.refuse(number, tooLong);
    const read = readLine(bytes, batch.endpoint);
    if (!read.ok) return this.refuse(number, read);
    const { customId, model, bodyAt, bodyBytes, tools } = read.line;
    if (bodyBytes > bodyBytesMax) return this.refuse(number, tooLong);
    if (this.#customIds.has(customId)) {
      const message = `custom_id ${JSON.stringify(customId)} is already used by an earlier line.`;
      return this.refuse(number, { code: 'duplicate_custom_id', message, param: 'custom_id' });
    }
    this.#customIds.add(customId);
    if (tools !== null && this.#parts.asking.hasEngineTools(batch.endpoint, tools)) {
      return this.refuse(number, engineTools);
    }
    const problem = await this.#problemOf(model);
    if (problem !== null) return this.refuse(number, problem);
    const line = { batchId: batch.id, number: this.total - 1, customId, bodyAt: at + bodyAt, bodyBytes };
    return { ...line, state: 'pending' };
  }

  /**
   * Rejects a second model, as OpenAI does: a batch then waits in only one queue. Different names of one model are
   * accepted.
   */
  async #problemOf(model: string): Promise<LineProblem | null> {
    if (this.model === null) {
      const message = await this.#parts.asking.refuseModel(this.#key, this.#claim.batch.endpoint, model);
      if (message !== null) return { code: 'model_not_found', message, param: 'body.model' };
      this.model = model;
    }
    const { asking } = this.#parts;
    if (this.model === model || asking.modelId(this.model) === asking.modelId(model)) return null;
    const message = `All lines of a batch must use one model. The first line uses ${JSON.stringify(this.model)}.`;
    return { code: 'mismatched_model', message, param: 'body.model' };
  }
}
