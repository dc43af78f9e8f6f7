import { and, desc, eq, inArray, lt, lte, notInArray, type SQL, sql } from 'drizzle-orm';
import type { ISql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Files } from '#core/files/files.ts';
import type { Asking } from './dependencies.ts';
import { type Batch, type BatchEndpoint, openStatuses } from './batch.ts';
import { type BatchRow, toBatch } from './batch-row.ts';
import { createClaims } from './claims.ts';
import { batches, waitsForNothing } from './schema.ts';
import { type BatchWorker, createWorker } from './worker.ts';

export type { Asking, BatchKey, LineAnswer, LineRequest } from './dependencies.ts';
export { type Batch, type BatchEndpoint, batchEndpoints, type BatchError } from './batch.ts';
export type { BatchWorker } from './worker.ts';

/** Batches in a restored copy of a database. */

/** Counts batches that still have requests to send. */
export async function countOpenBatches(sql: ISql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from batches where status in ('validating', 'in_progress') and ending is null`;
  return row?.count ?? 0;
}

/**
 * Cancels these batches: the next gateway that works on one sends nothing more, and writes the files of existing
 * answers.
 */
export async function cancelOpenBatches(sql: ISql): Promise<void> {
  await sql`
    update batches set status = 'cancelling', cancelling_at = clock_timestamp(), waiting_for = null
    where status in ('validating', 'in_progress') and ending is null`;
}

/**
 * Manages batches of requests. The lines of a file are sent as `flex` requests of the key that created the batch,
 * within 24 hours, and answered in a file. Any gateway continues a batch that another one has left.
 */
export interface Batches {
  /**
   * @throws AppError not_found if there is no such file, invalid_value if the file is not for batches, conflict if the
   *   organization has reached its limit of open batches, insufficient_scope without a key
   */
  create(batch: NewBatch, author: Author): Promise<Batch>;
  get(ref: BatchRef): Promise<Batch | null>;
  /** Lists batches, newest first. */
  list(listing: BatchListing): Promise<{ readonly batches: readonly Batch[]; readonly more: boolean }>;
  /** Returns null if there is no such batch. @throws AppError conflict if the batch has ended */
  cancel(ref: BatchRef, author: Author): Promise<Batch | null>;
  /** Deletes ended batches that are so old that none of their files exists any more. */
  deleteOld(): Promise<void>;
}

/** Batches that a caller may see; if `keyIds` is null, all of the organization. */
export interface BatchScope {
  readonly organizationId: string;
  readonly keyIds: readonly string[] | null;
}

export interface BatchRef extends BatchScope {
  readonly id: string;
}

export interface BatchListing extends BatchScope {
  readonly after: string | null;
  readonly limit: number;
}

export interface NewBatch extends BatchScope {
  readonly projectId: string;
  /** Null for a caller who may not use any key of the organization. */
  readonly keyId: string | null;
  readonly endpoint: BatchEndpoint;
  readonly inputFileId: string;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly outputKeepSeconds: number | null;
}

export interface BatchesOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly files: Files;
  /** Longest time that files are kept, in milliseconds. */
  readonly fileAgeMaxMs: number;
}

export interface BatchWorkerOptions extends Omit<BatchesOptions, 'audit' | 'fileAgeMaxMs'> {
  readonly log: Log;
  readonly asking: Asking;
  readonly gatewayId: string;
  /** Milliseconds after which a batch of a dead gateway goes to another one. */
  readonly leaseMs: number;
  readonly linesMax: number;
  readonly bodyBytesMax: number;
  readonly concurrency: number;
}

const windowMs = 86_400_000;
/** Milliseconds beyond the window for which the input file is held, so that it exists until the end is written. */
const heldBeyondMs = 86_400_000;
/** Most open batches of one organization. */
const openMax = 100;
const cancellable = ['validating', 'in_progress'] as const;

export function createBatchWorker(options: BatchWorkerOptions): BatchWorker {
  return createWorker({ ...options, claims: createClaims(options) });
}

export function createBatches(options: BatchesOptions): Batches {
  const { db, clock, fileAgeMaxMs } = options;
  return {
    async create(input, author) {
      await requireInput(options, input);
      return db.orm.transaction((tx) => createIn(options, tx, input, author));
    },
    async get(ref) {
      const [row] = await db.orm
        .select()
        .from(batches)
        .where(and(eq(batches.id, ref.id), seen(ref)));
      return row === undefined ? null : toBatch(row);
    },
    async list(listing) {
      const { after, limit } = listing;
      const rows = await db.orm
        .select()
        .from(batches)
        .where(and(seen(listing), ...(after === null ? [] : [lt(batches.id, after)])))
        .orderBy(desc(batches.id))
        .limit(limit + 1);
      return { batches: rows.slice(0, limit).map(toBatch), more: rows.length > limit };
    },
    cancel: (ref, author) => db.orm.transaction((tx) => cancelIn(options, tx, ref, author)),
    async deleteOld() {
      const before = new Date(clock.now() - fileAgeMaxMs - windowMs - heldBeyondMs);
      await db.orm
        .delete(batches)
        .where(and(lte(batches.createdAt, before), notInArray(batches.status, [...openStatuses])));
    },
  };
}

function seen({ organizationId, keyIds }: BatchScope): SQL | undefined {
  const ofKeys = keyIds === null ? [] : [inArray(batches.keyId, [...keyIds])];
  return and(eq(batches.organizationId, organizationId), ...ofKeys);
}

const inputOf = ({ organizationId, keyIds, inputFileId }: NewBatch) => ({ organizationId, keyIds, id: inputFileId });

/**
 * Checks the input of a batch. Runs before the transaction: transactions that each wait for a second connection could
 * deadlock.
 * @throws AppError if the file does not exist or is not for batches, or the caller has no key
 */
async function requireInput({ files }: BatchesOptions, input: NewBatch): Promise<void> {
  const file = await files.get(inputOf(input));
  if (file === null) throw noFile();
  if (input.keyId === null) throw needsKey();
  if (file.purpose !== 'batch') throw notForBatches();
}

async function createIn(
  { clock, files, audit }: BatchesOptions,
  tx: Transaction,
  input: NewBatch,
  author: Author,
): Promise<Batch> {
  const { organizationId, keyId } = input;
  const fileRef = inputOf(input);
  if (keyId === null) throw needsKey();
  await requireRoom(tx, organizationId);
  const nowMs = clock.now();
  const expiresAtMs = nowMs + windowMs;
  if (!(await files.hold(tx, fileRef, expiresAtMs + heldBeyondMs))) throw noFile();
  const values = rowOf({ ...input, keyId }, nowMs, expiresAtMs);
  const [row] = await tx.insert(batches).values(values).returning();
  if (row === undefined) throw new Error('a batch was not inserted');
  await record(audit, tx, { author, action: 'batch.created', row });
  return toBatch(row);
}

async function cancelIn(
  { clock, audit }: BatchesOptions,
  tx: Transaction,
  ref: BatchRef,
  author: Author,
): Promise<Batch | null> {
  const [found] = await tx
    .select()
    .from(batches)
    .where(and(eq(batches.id, ref.id), seen(ref)))
    .for('update');
  if (found === undefined) return null;
  if (found.status === 'cancelling' || found.status === 'cancelled') return toBatch(found);
  const isOver = !cancellable.some((status) => status === found.status) || found.ending !== null;
  if (isOver) throw hasEnded(found);
  const [row] = await tx
    .update(batches)
    .set({ status: 'cancelling', cancellingAt: new Date(clock.now()), ...waitsForNothing })
    .where(eq(batches.id, found.id))
    .returning();
  if (row === undefined) return null;
  await record(audit, tx, { author, action: 'batch.cancelled', row });
  return toBatch(row);
}

interface Recorded {
  readonly author: Author;
  readonly action: string;
  readonly row: BatchRow;
}

function record(audit: Audit, tx: Transaction, { author, action, row }: Recorded): Promise<void> {
  const { organizationId, endpoint, status } = row;
  const targetId = formatId('batch', row.id);
  const after = { id: targetId, endpoint, status, input_file_id: formatId('file', row.inputFileId) };
  return audit.record(tx, { organizationId, author, action, targetType: 'batch', targetId, before: null, after });
}

function rowOf(
  input: NewBatch & { readonly keyId: string },
  nowMs: number,
  expiresAtMs: number,
): typeof batches.$inferInsert {
  const now = new Date(nowMs);
  return {
    id: uuidv7(nowMs),
    organizationId: input.organizationId,
    projectId: input.projectId,
    keyId: input.keyId,
    endpoint: input.endpoint,
    inputFileId: input.inputFileId,
    metadata: input.metadata,
    outputKeepSeconds: input.outputKeepSeconds,
    status: 'validating',
    errors: [],
    createdAt: now,
    expiresAt: new Date(expiresAtMs),
    leaseUntil: now,
    turnAt: now,
  };
}

async function requireRoom(tx: Transaction, organizationId: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext(${`headgate batches ${organizationId}`}))`);
  const [found] = await tx
    .select({ count: sql<string>`count(*)` })
    .from(batches)
    .where(and(eq(batches.organizationId, organizationId), inArray(batches.status, [...openStatuses])));
  if (Number(found?.count ?? 0) < openMax) return;
  const message = `The organization has ${openMax} unfinished batches, the maximum. Wait until some of them end.`;
  throw new AppError('conflict', { message, lasting: true });
}

const noFile = (): AppError => new AppError('not_found', { message: 'There is no such file.', param: 'input_file_id' });

const needsKey = (): AppError =>
  new AppError('insufficient_scope', {
    message:
      'Create a batch with an API key of its organization. The batch runs with this key and is billed to the organization.',
  });

const notForBatches = (): AppError =>
  new AppError('invalid_value', {
    message: 'input_file_id: this file is the output of a batch. Use a file with the purpose "batch".',
    param: 'input_file_id',
  });

const hasEnded = ({ status }: BatchRow): AppError =>
  new AppError('conflict', { message: `The batch is ${status} and cannot be canceled.`, lasting: true });
