import { eq } from 'drizzle-orm';
import type { Files } from '#core/files/files.ts';
import type { Asking, BatchKey } from './asking.ts';
import type { BatchError } from './batch.ts';
import type { Claim, Claims } from './claims.ts';
import { splitLines } from './lines.ts';
import { type LineProblem, readLine } from './read-line.ts';
import { batchLines } from './schema.ts';

export interface ValidateParts {
  readonly claims: Claims;
  readonly files: Files;
  readonly asking: Asking;
  readonly linesMax: number;
  readonly bodyBytesMax: number;
}

/** What is wrong with a file, or the model that all of it is for. */
export type Validated =
  | { readonly ok: true; readonly model: string; readonly total: number }
  | { readonly ok: false; readonly errors: readonly BatchError[] };

/** Of one batch; what is wrong behind them is left out. */
const errorsMax = 100;
const insertedAtOnce = 1000;
/** Of a line around its body. */
const aroundBytesMax = 8192;
/** So much is read in one turn of the event loop, or one line. */
const turnBytes = 1_048_576;
/** What a line takes however short it is, in bytes that are read meanwhile: a file may be all ends of lines. */
const lineCostBytes = 256;

type LineRow = typeof batchLines.$inferInsert;

/**
 * Reads the file of a batch and writes down where its requests stand in it. What a gateway before had written of them is
 * written anew.
 * @param isWanted asked while it reads; false ends it as if the file ended there
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

/** A message may quote the file, and PostgreSQL takes neither NUL nor half a surrogate pair into its JSON. */
const storable = (message: string): string => message.replaceAll('\0', '\ufffd').toWellFormed();

/** Editors leave lines behind that are nearly empty, and none that are long. */
const isBlank = (bytes: Buffer | null): boolean =>
  bytes !== null && bytes.length <= 64 && /^[ \t]*$/.test(bytes.toString('latin1'));

const empty: LineProblem = { code: 'empty_file', message: 'The file has no requests.', param: 'input_file_id' };

const tooMany = (linesMax: number): LineProblem => ({
  code: 'too_many_tasks',
  message: `The file has more than ${linesMax} requests: make several batches of it.`,
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

  /** Nothing more is read. */
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
    const tooLong = { code: 'line_too_long', message: `A body has at most ${bodyBytesMax} bytes.`, param: null };
    if (bytes === null) return this.refuse(number, tooLong);
    const read = readLine(bytes, batch.endpoint);
    if (!read.ok) return this.refuse(number, read);
    const { customId, model, bodyAt, bodyBytes } = read.line;
    if (bodyBytes > bodyBytesMax) return this.refuse(number, tooLong);
    if (this.#customIds.has(customId)) {
      const message = `custom_id ${JSON.stringify(customId)} is that of an earlier line.`;
      return this.refuse(number, { code: 'duplicate_custom_id', message, param: 'custom_id' });
    }
    this.#customIds.add(customId);
    const problem = await this.#problemOf(model);
    if (problem !== null) return this.refuse(number, problem);
    const line = { batchId: batch.id, number: this.total - 1, customId, bodyAt: at + bodyAt, bodyBytes };
    return { ...line, state: 'pending' };
  }

  /** One batch is for one model, by whichever of its names, as OpenAI has it: it is then one queue that it waits in. */
  async #problemOf(model: string): Promise<LineProblem | null> {
    if (this.model === null) {
      const message = await this.#parts.asking.refuseModel(this.#key, this.#claim.batch.endpoint, model);
      if (message !== null) return { code: 'model_not_found', message, param: 'body.model' };
      this.model = model;
    }
    const { asking } = this.#parts;
    if (this.model === model || asking.modelId(this.model) === asking.modelId(model)) return null;
    const message = `A batch is for one model, and its first line names ${JSON.stringify(this.model)}.`;
    return { code: 'mismatched_model', message, param: 'body.model' };
  }
}
