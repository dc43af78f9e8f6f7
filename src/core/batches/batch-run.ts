import { randomInt } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { AppError, errorEnvelope } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Files } from '#core/files/files.ts';
import { compress } from '#core/stored-requests/stored-requests.ts';
import type { BodyMemoryBudget } from './body-memory-budget.ts';
import { type Asking, type BatchKey, type LineAnswer, lineKey, type LineRequest } from './dependencies.ts';
import type { BatchEnding, BatchStatus } from './batch.ts';
import { type Claim, type Claims, LostClaimError } from './claims.ts';
import { judge, roomAgainMs } from './classify-answer.ts';
import { createLineQueue, type LineQueue, type PendingLine } from './line-queue.ts';
import { modelNotFoundCode, modelPollMs } from './check-model.ts';
import { createNotes, type Notes } from './pending-results.ts';
import { flexBody } from './read-line.ts';

export interface RunParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly claims: Claims;
  readonly files: Files;
  readonly asking: Asking;
  readonly memory: BodyMemoryBudget;
}

/** Result of a run: the end of the batch, or the time of its next turn, for which the batch is released. */
export type AskedEnd =
  | { readonly ending: BatchEnding }
  | { readonly turnAtMs: number; readonly waitingFor: string | null };

/** Requests at the start; few, because their answers show how much room there is. */
const windowFirst = 2;
/** Milliseconds of waiting after which a batch gives its place to another one. */
const yieldMs = 2000;
const sliceMs = 30_000;
const pollMs = 200;
const limitCode = 'rate_limit_exceeded';
/** Lines rejected for lack of money, without an answered line in between, after which the batch waits. */
const unpaidMax = 4;
/** Milliseconds between reads of the key, because its limits can change while a batch runs. */
const keyCheckMs = 5000;
/** Attempts after which a request has failed, if each attempt failed for a reason that waiting does not fix. */
const triesMax = 8;
const triesMsMax = 60_000;
const notesMax = 500;

/** Sends the requests of one batch, as many at once as there is room for. */
export class BatchRun {
  readonly #parts: RunParts;
  readonly #claim: Claim;
  readonly #queue: LineQueue;
  readonly #notes: Notes;
  /** Running attempts, not lines: a queued line's earlier attempt may still be ending when the line is sent again. */
  readonly #running = new Set<AbortController>();
  readonly #sinceMs: number;
  #key: BatchKey;
  #keyCheckedMs: number;
  #window = windowFirst;
  #pausedUntilMs = 0;
  #waitingFor: string | null = null;
  /** Lines rejected for lack of money since a line was answered, and the verdict on the latest of them. */
  #unpaid = 0;
  #unpaidVerdict = { afterMs: 0, code: '' };
  /** True until a dry request shows that the limits have room again; a real request would take room from others. */
  #mustCheckRoom: boolean;
  #keyEnded = false;
  #status: BatchStatus | 'lost' = 'in_progress';
  #isStopping = false;
  #failure: unknown = null;
  #wake: () => void = () => undefined;

  constructor(parts: RunParts, claim: Claim, key: BatchKey) {
    this.#parts = parts;
    this.#claim = claim;
    this.#key = key;
    this.#queue = createLineQueue(parts.db, claim.batch.id, startOf(claim.batch));
    this.#notes = createNotes(parts, claim, (error) => this.#broke(error));
    this.#sinceMs = parts.clock.now();
    this.#keyCheckedMs = this.#sinceMs;
    this.#mustCheckRoom = claim.batch.waitingFor === limitCode;
  }

  /** Sets the batch's status in the database. A lost batch stays lost, and all its running requests end. */
  setStatus(status: BatchStatus | 'lost'): void {
    // The gateway that has the batch now sends the open lines: requests running here would be computed twice.
    if (status === 'lost') this.#abort(otherHas());
    if (this.#status !== 'lost') this.#status = status;
    this.#wake();
  }

  /** Stops sending requests; running requests are answered. */
  stop(): void {
    this.#isStopping = true;
    this.#wake();
  }

  /** @throws LostClaimError; errors of the database, after all running requests have ended */
  async ask(): Promise<AskedEnd> {
    for (;;) {
      const end = this.#endNow();
      if (end !== null) return this.#end(end);
      // Running requests are answered even if this throws.
      if (this.#mayAsk()) await this.#askMore().catch((error: unknown) => this.#broke(error));
      if (this.#failure !== null) continue;
      if (this.#running.size === 0 && this.#queue.isEmpty) {
        await this.#notes.flush();
        if (await this.#queue.isAllAnswered()) return { ending: 'completed' };
        this.#broke(new Error('requests of the batch have no response and are not running'));
      }
      await this.#waitForChange();
    }
  }

  /** Returns why no more requests are sent; null if there is no reason. */
  #endNow(): AskedEnd | 'lost' | 'broken' | null {
    const { clock, memory } = this.#parts;
    const nowMs = clock.now();
    if (this.#status === 'lost') return 'lost';
    if (this.#failure !== null) return 'broken';
    const ending = this.#endingNow();
    if (ending !== null) return { ending };
    if (this.#isStopping) return { turnAtMs: nowMs, waitingFor: null };
    if (this.#running.size > 0) return null;
    if (this.#pausedUntilMs - nowMs > yieldMs) {
      return { turnAtMs: this.#pausedUntilMs, waitingFor: this.#waitingFor };
    }
    return memory.isFull && nowMs - this.#sinceMs > sliceMs ? { turnAtMs: nowMs, waitingFor: null } : null;
  }

  /** Returns the early end of the batch; null if there is none. */
  #endingNow(): BatchEnding | null {
    if (this.#status === 'cancelling') return 'cancelled';
    if (this.#keyEnded) return 'failed';
    return this.#parts.clock.now() >= this.#claim.batch.expiresAtMs ? 'expired' : null;
  }

  async #end(end: AskedEnd | 'lost' | 'broken'): Promise<AskedEnd> {
    while (this.#running.size > 0) {
      // Checked again here, because running requests may be awaited for long, as by a stopping gateway.
      const ending = this.#endingNow();
      if (ending !== null) this.#abort(endedEarly(ending));
      await this.#waitForChange();
    }
    if (end === 'lost') throw new LostClaimError(this.#claim.batch.id);
    await this.#notes.flush();
    if (end === 'broken') throw this.#failure;
    return end;
  }

  #mayAsk(): boolean {
    const { clock, memory } = this.#parts;
    const nowMs = clock.now();
    if (nowMs < this.#pausedUntilMs || this.#notes.pending > notesMax) return false;
    // Another batch waits for this place: running requests are answered first.
    return !(memory.isFull && nowMs - this.#sinceMs > sliceMs);
  }

  get #mayGoOn(): boolean {
    return this.#status === 'in_progress' && !this.#keyEnded && !this.#isStopping && this.#failure === null;
  }

  /** Limits a batch to half of its key's concurrency, which leaves the other half to other callers with the key. */
  get #windowMax(): number {
    const { maxConcurrency } = this.#key;
    const ofKey = maxConcurrency === null ? Infinity : Math.max(1, Math.floor(maxConcurrency / 2));
    return Math.min(ofKey, this.#parts.memory.share);
  }

  async #askMore(): Promise<void> {
    await this.#lookForLimits();
    await this.#fill();
  }

  async #lookForLimits(): Promise<void> {
    const nowMs = this.#parts.clock.now();
    if (nowMs - this.#keyCheckedMs < keyCheckMs) return;
    this.#keyCheckedMs = nowMs;
    const key = await this.#parts.asking.keyOf(this.#claim.batch);
    if (key === null) this.#keyEnded = true;
    else this.#key = key;
  }

  async #fill(): Promise<void> {
    const { clock, memory } = this.#parts;
    if (this.#mustCheckRoom && !(await this.#findsRoom())) return;
    while (this.#running.size < Math.min(this.#window, this.#windowMax) && this.#mayGoOn) {
      const line = await this.#queue.next(clock.now());
      if (line === null) return this.#waitForMoney();
      if (!this.#mayGoOn || !memory.takeBytes(this, line.bodyBytes)) {
        this.#queue.again(line);
        return;
      }
      const control = new AbortController();
      this.#running.add(control);
      this.#askLine(line, control.signal)
        .catch((error: unknown) => this.#broke(error))
        .finally(() => {
          memory.giveBytes(line.bodyBytes);
          this.#running.delete(control);
          this.#wake();
        });
    }
  }

  /** Pauses the batch if only lines rejected for lack of money are left. */
  #waitForMoney(): void {
    const { afterMs, code } = this.#unpaidVerdict;
    if (this.#queue.isUnpaid && this.#running.size === 0) this.#pause(this.#parts.clock.now() + afterMs, code);
  }

  /**
   * Checks the limits with a dry request. Daily limits can stay more than half spent for long, so a waiting batch sends
   * no real request.
   */
  async #findsRoom(): Promise<boolean> {
    const { clock, asking } = this.#parts;
    const line = await this.#queue.next(clock.now());
    if (line === null) return true;
    this.#queue.again(line);
    const request = await this.#requestOf(line, new AbortController().signal, true);
    const { headers } = await asking.ask(request).catch((error: unknown) => this.#unforeseen(error));
    const roomMs = roomAgainMs(headers, clock.now());
    if (roomMs !== null) this.#pause(roomMs, limitCode);
    else this.#mustCheckRoom = false;
    return roomMs === null;
  }

  async #askLine(line: PendingLine, signal: AbortSignal): Promise<void> {
    const request = await this.#requestOf(line, signal, false);
    if (signal.aborted) return;
    const answer = await this.#parts.asking.ask(request).catch((error: unknown) => this.#unforeseen(error));
    // An aborted request counts as not answered, unless its answer arrived at that moment and was charged.
    if (signal.aborted && answer.status !== 200) return;
    await this.#answered(line, answer, request.key);
  }

  async #requestOf(line: PendingLine, signal: AbortSignal, isDry: boolean): Promise<LineRequest> {
    const { batch } = this.#claim;
    const written = await this.#parts.files.readRange(batch.inputFileId, line.bodyAt, line.bodyBytes);
    const body = flexBody(written);
    return {
      key: this.#key,
      projectId: batch.projectId,
      endpoint: batch.endpoint,
      body,
      addedBytes: Math.max(0, body.length - written.length),
      idempotencyKey: lineKey(batch, line.number),
      isDry,
      note: `${formatId('batch', batch.id)}/${line.number + 1}`,
      signal,
    };
  }

  /** Turns an unexpected error into an answer after which the request is sent again, so that no request is lost. */
  #unforeseen(error: unknown): LineAnswer {
    this.#parts.log.warn(
      { err: error, batch: this.#claim.batch.id },
      'a request of a batch failed in the gateway; the batch sends it again',
    );
    const body = JSON.stringify(errorEnvelope(new AppError('internal_error')));
    return { status: 500, headers: {}, body: Buffer.from(body) };
  }

  async #answered(line: PendingLine, answer: LineAnswer, askedWith: BatchKey): Promise<void> {
    const nowMs = this.#parts.clock.now();
    const verdict = judge(answer);
    const roomMs = roomAgainMs(answer.headers, nowMs);
    if (roomMs !== null) this.#pause(roomMs, limitCode);
    switch (verdict.kind) {
      case 'completed':
        this.#window = Math.min(this.#windowMax, this.#window + 1);
        return this.#note(line, 'completed', answer);
      case 'failed':
        return this.#note(line, 'failed', answer);
      case 'again': {
        const tries = line.tries + (verdict.counts ? 1 : 0);
        if (tries >= triesMax) return this.#note(line, 'failed', answer);
        const waitMs = verdict.counts ? Math.min(triesMsMax, 500 * 2 ** tries) : 0;
        this.#queue.again({ ...line, tries, notBeforeMs: nowMs + Math.max(verdict.afterMs, waitMs), isUnpaid: false });
        return;
      }
      case 'money':
        this.#window = Math.max(1, Math.floor(this.#window / 2));
        this.#unpaid += 1;
        this.#unpaidVerdict = verdict;
        this.#queue.again({ ...line, notBeforeMs: nowMs + verdict.afterMs, isUnpaid: true });
        if (this.#unpaid >= unpaidMax) this.#pause(nowMs + verdict.afterMs, verdict.code);
        return;
      case 'wait':
        this.#window = Math.max(1, Math.floor(this.#window / 2));
        this.#pause(nowMs + verdict.afterMs, verdict.code);
        this.#queue.again(line);
        return;
      case 'model':
        this.#window = 1;
        this.#pause(nowMs + modelPollMs, modelNotFoundCode);
        this.#queue.again(line);
        return;
      case 'key':
        await this.#lookAtKey(askedWith);
        this.#queue.again(line);
    }
  }

  #pause(untilMs: number, code: string): void {
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
    this.#waitingFor = code;
  }

  /** Reads the key again: its secret may have been rotated since the request was sent. */
  async #lookAtKey(askedWith: BatchKey): Promise<void> {
    const key = await this.#parts.asking.keyOf(this.#claim.batch);
    if (key === null) this.#keyEnded = true;
    else if (key.secretHash.equals(askedWith.secretHash)) this.#pause(this.#parts.clock.now() + 1000, 'unauthorized');
    else this.#key = key;
  }

  async #note(
    { number }: PendingLine,
    state: 'completed' | 'failed',
    { status, headers, body }: LineAnswer,
  ): Promise<void> {
    this.#unpaid = 0;
    const answer = await compress(body);
    // A line that was sent again is charged under the id of the request that ran.
    const requestId = headers['x-headgate-original-request-id'] ?? headers['x-request-id'] ?? '';
    this.#notes.add({ number, state, requestId, statusCode: status, answer });
  }

  #broke(error: unknown): void {
    if (error instanceof LostClaimError) return this.setStatus('lost');
    this.#failure ??= error;
    this.#wake();
  }

  #abort(error: Error): void {
    for (const control of this.#running) control.abort(error);
  }

  #waitForChange(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pollMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/**
 * Returns the line that a turn starts with. After a wait the line is random: otherwise lines that there is no money for
 * would make every turn wait again before it reaches the others.
 */
const startOf = ({ waitingFor, counts }: Claim['batch']): number =>
  waitingFor === null ? 0 : randomInt(Math.max(1, counts.total));

function endedEarly(ending: BatchEnding): AppError {
  return new AppError('upstream_error', {
    status: 503,
    message: `The request was stopped, because its batch has ended (${ending}).`,
  });
}

const otherHas = (): AppError =>
  new AppError('upstream_error', {
    status: 503,
    message: 'The request was stopped, because another gateway continues its batch.',
  });
