import { and, eq, inArray, max, ne } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { Files } from '#core/files/files.ts';
import type { Asking, BatchKey } from './dependencies.ts';
import { type BodyMemoryBudget, createBodyMemoryBudget } from './body-memory-budget.ts';
import { BatchRun } from './batch-run.ts';
import { type BatchRow, toBatch } from './batch-row.ts';
import { type Batch, type BatchEnding, type BatchError, type BatchStatus, openStatuses } from './batch.ts';
import { type Claim, type Claims, LostClaimError } from './claims.ts';
import { concludeLines, forgetAnswers } from './finalize.ts';
import { checkModel, modelNotFoundCode, modelPollMs } from './check-model.ts';
import { fileName, writeOutput } from './output.ts';
import { batches, batchLines, waitsForNothing } from './schema.ts';
import { validateFile } from './validate.ts';

/**
 * Detects locally when another gateway may have taken a claim: `leaseMs` after its last renewal. This works for a
 * gateway that cannot reach the database or was frozen for a while.
 */
interface Lease {
  /** @param beganMs start of the renewal on the monotonic clock, before the database was called */
  renewed(beganMs: number): void;
  end(): void;
}

interface LeaseOptions {
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly onOver: () => void;
}

function createLease({ clock, leaseMs, onOver }: LeaseOptions, beganMs: number): Lease {
  let timer: NodeJS.Timeout | undefined;
  const renewed = (sinceMs: number): void => {
    clearTimeout(timer);
    timer = setTimeout(onOver, Math.max(0, sinceMs + leaseMs - clock.monotonicMs())).unref();
  };
  renewed(beganMs);
  return { renewed, end: () => clearTimeout(timer) };
}

/** Works on this gateway's batches, several at a time, each from its current state to its end. */
export interface BatchWorker {
  /** Renews claims, and takes batches while there is room. Call this every second. */
  tick(): Promise<void>;
  /** Sends no more requests, and keeps claims on running ones until `close`. */
  stopAsking(): void;
  /** Waits at most `timeoutMs` until all results are written and all batches are released. */
  close(timeoutMs: number): Promise<void>;
}

export interface WorkerOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly claims: Claims;
  /** Milliseconds that a claim lasts after its last renewal. */
  readonly leaseMs: number;
  readonly files: Files;
  readonly asking: Asking;
  readonly linesMax: number;
  readonly bodyBytesMax: number;
  /** Most requests of all batches at once; 0: no batch is worked on here. */
  readonly concurrency: number;
}

const batchesMax = 16;
const againMs = 5000;

interface Work {
  readonly claim: Claim;
  readonly lease: Lease;
  run: BatchRun | null;
  status: BatchStatus | 'lost';
  ended: Promise<void>;
}

export function createWorker(options: WorkerOptions): BatchWorker {
  return new Worker(options);
}

class Worker implements BatchWorker {
  readonly #options: WorkerOptions;
  readonly #works = new Set<Work>();
  readonly #memory: BodyMemoryBudget;
  #isStopping = false;
  #renewing: NodeJS.Timeout | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#memory = createBodyMemoryBudget({
      clock: options.clock,
      batches: () => this.#works.size,
      asking: () => [...this.#works].filter(({ run }) => run !== null).length,
      concurrency: options.concurrency,
      batchesMax,
    });
  }

  async tick(): Promise<void> {
    const { claims, clock, concurrency } = this.#options;
    if (this.#isStopping || concurrency === 0) return;
    await this.#renew();
    while (this.#works.size < batchesMax && !this.#isStopping) {
      const beganMs = clock.monotonicMs();
      const claim = await claims.take();
      if (claim === null) return;
      this.#begin(claim, beganMs);
    }
  }

  async #renew(): Promise<void> {
    const { claims, clock } = this.#options;
    const works = [...this.#works].filter((work) => !isLost(work));
    const beganMs = clock.monotonicMs();
    const statuses = await claims.renew(works.map(({ claim }) => claim));
    for (const work of works) {
      const status = statuses.get(work.claim.batch.id);
      if (status !== undefined) work.lease.renewed(beganMs);
      setStatus(work, status ?? 'lost');
    }
  }

  stopAsking(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    // Running requests are answered here, however long that takes: the lease keeps other gateways from starting them.
    const renew = (): void => void this.#renew().catch(() => undefined);
    this.#renewing = setInterval(renew, Math.ceil(this.#options.leaseMs / 3)).unref();
    for (const { run } of this.#works) run?.stop();
  }

  async close(timeoutMs: number): Promise<void> {
    const all = Promise.all([...this.#works].map(({ ended }) => ended));
    await isLate(all, timeoutMs);
    clearInterval(this.#renewing);
  }

  #begin(claim: Claim, beganMs: number): void {
    const lease = createLease({ ...this.#options, onOver: () => setStatus(work, 'lost') }, beganMs);
    const work: Work = { claim, lease, run: null, status: claim.batch.status, ended: Promise.resolve() };
    this.#works.add(work);
    work.ended = this.#work(work).finally(() => {
      lease.end();
      this.#works.delete(work);
    });
  }

  /** Works on a batch and never rejects: after a failure the work is tried again, here or on another gateway. */
  async #work(work: Work): Promise<void> {
    const { claims, clock, log } = this.#options;
    const { claim } = work;
    try {
      await this.#advance(work);
    } catch (error) {
      if (error instanceof LostClaimError) return;
      log.warn(
        { err: error, batch: claim.batch.id },
        'a batch paused after an error; this or another gateway continues it',
      );
      const next = { atMs: clock.now() + againMs, waitingFor: null };
      await claims.release(claim, next).catch(() => undefined);
    }
  }

  async #advance(work: Work): Promise<void> {
    const { claims, clock, log } = this.#options;
    const { claim } = work;
    const ending = claim.batch.ending ?? (await this.#ask(work));
    if (ending === null) return;
    if (ending === 'given back') {
      await claims.release(claim, { atMs: clock.now(), waitingFor: null });
      return;
    }
    await concludeLines(this.#options, claim);
    const batch = await this.#current(claim);
    const output = await writeOutput(this.#options, batch, ending);
    try {
      await claims.during(claim, (tx, row) => finish({ ...this.#options, tx, row }, ending, output));
      log.info({ batch: claim.batch.id, organization: claim.batch.organizationId, ending }, 'a batch has ended');
    } catch (error) {
      await output.abort();
      throw error;
    }
    await forgetAnswers(this.#options, batch).catch((error: unknown) => {
      log.warn(
        { err: error, batch: batch.id },
        'a batch ended, but temporary copies of its responses could not all be deleted; they expire by themselves',
      );
    });
  }

  async #current(claim: Claim): Promise<Batch> {
    return this.#options.claims.during(claim, (_tx, row) => Promise.resolve(toBatch(row)));
  }

  /** @returns the ending of the batch; 'given back' if it must be released; null if it was released */
  async #ask(work: Work): Promise<BatchEnding | 'given back' | null> {
    const { asking, clock, claims } = this.#options;
    const { claim } = work;
    const { batch } = claim;
    if (batch.status === 'cancelling') return this.#close(claim, 'cancelled', []);
    const key = await asking.keyOf(batch);
    if (key === null) return this.#close(claim, 'failed', [keyInvalid]);
    if (batch.status === 'validating') {
      const isValid = await this.#validate(work, key);
      if (isValid !== true) return isValid;
    }
    if (clock.now() >= batch.expiresAtMs) return this.#close(claim, 'expired', []);
    if (this.#isStopping) return 'given back';
    const model = await checkModel(this.#options, batch, key);
    if (model === 'gone') {
      await claims.release(claim, { atMs: clock.now() + modelPollMs, waitingFor: modelNotFoundCode });
      return null;
    }
    if (model !== 'here') return this.#close(claim, 'failed', [model]);
    work.run = new BatchRun({ ...this.#options, memory: this.#memory }, claim, key);
    if (work.status !== 'validating') work.run.setStatus(work.status);
    if (this.#isStopping) work.run.stop();
    const end = await work.run.ask();
    if ('ending' in end) return this.#close(claim, end.ending, end.ending === 'failed' ? [keyInvalid] : []);
    await claims.release(claim, { atMs: end.turnAtMs, waitingFor: end.waitingFor });
    return null;
  }

  /** @returns true if requests can be sent now */
  async #validate(work: Work, key: BatchKey): Promise<true | BatchEnding | 'given back'> {
    const { claims, clock } = this.#options;
    const { claim } = work;
    const isWanted = (): boolean => work.status === 'validating' && !this.#isStopping;
    const validated = await validateFile(this.#options, claim, key, isWanted);
    if (isLost(work)) throw new LostClaimError(claim.batch.id);
    if (this.#isStopping) return 'given back';
    const now = new Date(clock.now());
    const status = await claims.during(claim, async (tx, row) => {
      if (row.status !== 'validating') return row.status;
      const set = validated.ok
        ? { status: 'in_progress' as const, model: validated.model, total: validated.total, inProgressAt: now }
        : { ending: 'failed' as const, errors: validated.errors };
      await tx.update(batches).set(set).where(eq(batches.id, row.id));
      if (!validated.ok) await tx.delete(batchLines).where(eq(batchLines.batchId, row.id));
      return validated.ok ? 'in_progress' : 'validating';
    });
    if (!isLost(work)) work.status = status;
    if (status === 'cancelling') return this.#close(claim, 'cancelled', []);
    return validated.ok ? true : 'failed';
  }

  /** Records the ending, after which no gateway sends more requests of the batch. */
  #close(claim: Claim, asked: BatchEnding, errors: readonly BatchError[]): Promise<BatchEnding> {
    return this.#options.claims.during(claim, async (tx, row) => {
      const ending = endingOf(row, asked);
      const isNamed = ending === 'completed' || ending === 'expired';
      const isWhy = ending === asked && errors.length > 0;
      const set = { ending, finalizingAt: new Date(this.#options.clock.now()), ...waitsForNothing };
      await tx
        .update(batches)
        .set({ ...set, ...(isNamed && { status: 'finalizing' as const }), ...(isWhy && { errors }) })
        .where(eq(batches.id, row.id));
      return ending;
    });
  }
}

function endingOf({ status, total, completed, failed }: BatchRow, asked: BatchEnding): BatchEnding {
  // The batch was canceled in the meantime, and its user expects that status.
  if (status === 'cancelling') return 'cancelled';
  // Events after the last answer, such as the end of the window, kept no request from running.
  return total > 0 && completed + failed === total ? 'completed' : asked;
}

const isLost = ({ status }: Work): boolean => status === 'lost';

function setStatus(work: Work, status: BatchStatus | 'lost'): void {
  if (isLost(work)) return;
  work.status = status;
  work.run?.setStatus(status);
}

const keyInvalid: BatchError = {
  code: 'unauthorized',
  message: 'The API key that created this batch was revoked or has expired. The remaining requests were not run.',
  param: null,
  line: null,
};

interface FinishParts {
  readonly files: Files;
  readonly clock: Clock;
  readonly tx: Transaction;
  readonly row: BatchRow;
}

/** Makes all effects of a batch's end visible at once. */
async function finish(
  { files, clock, tx, row }: FinishParts,
  asked: BatchEnding,
  { answers, errors }: Awaited<ReturnType<typeof writeOutput>>,
): Promise<void> {
  // Charged answers without a result may have been added since the ending was decided.
  const ending = endingOf(row, asked);
  const batch = toBatch(row);
  const now = new Date(clock.now());
  const output = await answers?.complete({ filename: fileName(batch, 'output') }, tx);
  const failures = await errors?.complete({ filename: fileName(batch, 'error') }, tx);
  await tx
    .update(batches)
    .set({
      status: ending,
      ...(ending !== asked && { errors: [] }),
      outputFileId: output?.id ?? null,
      errorFileId: failures?.id ?? null,
      gatewayId: null,
      leaseUntil: now,
      ...(ending === 'completed' && { completedAt: now }),
      ...(ending === 'failed' && { failedAt: now }),
      ...(ending === 'expired' && { expiredAt: now }),
      ...(ending === 'cancelled' && { cancelledAt: now }),
    })
    .where(eq(batches.id, row.id));
  await tx.delete(batchLines).where(eq(batchLines.batchId, row.id));
  await letGo(files, tx, row);
}

/**
 * Releases the input file, unless another batch uses it. The file is locked first, because creating a batch locks it
 * first too.
 */
async function letGo(files: Files, tx: Transaction, { id, inputFileId, organizationId }: BatchRow): Promise<void> {
  await files.lock(tx, { organizationId, keyIds: null, id: inputFileId });
  const [others] = await tx
    .select({ until: max(batches.expiresAt) })
    .from(batches)
    .where(and(eq(batches.inputFileId, inputFileId), ne(batches.id, id), inArray(batches.status, [...openStatuses])));
  if ((others?.until ?? null) === null) {
    await files.hold(tx, { organizationId, keyIds: null, id: inputFileId }, null);
  }
}
