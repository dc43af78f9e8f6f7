import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { ConcurrencyLimit, TooManyWaitError } from '#base/queues/queues.ts';
import { within } from '#base/within.ts';
import { BoundedAsking, NotAskedError } from './circuit-breaker.ts';
import { decompress } from './compress.ts';
import { IdempotencyRows } from './idempotency-rows.ts';
import { LeaseContact } from './lease-contact.ts';
import type { SettledClaim } from './settled-claims.ts';
import { type Settling, UnsettledAnswers } from './unsettled-answers.ts';

/** A request that carries an Idempotency-Key. */
export interface Claim {
  readonly organizationId: string;
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly requestId: string;
  /** SHA-256 over the route and the body; a repetition has the same hash. */
  readonly bodyHash: Buffer;
}

/**
 * End of a request that others have joined: its answer as latin1, its error, or nothing to share. `requestId`: the
 * request that ran, and was charged if any was.
 */
export type SharedEnd =
  | { readonly kind: 'answer'; readonly requestId: string; readonly text: string }
  | { readonly kind: 'error'; readonly requestId: string; readonly error: AppError }
  | { readonly kind: 'none' };

export type ClaimResult =
  /** The request is the first with this key, and its turn must be ended. */
  | { readonly kind: 'run'; readonly run: IdempotentRun }
  /** The answer of the first request, as latin1, and its id. */
  | { readonly kind: 'replay'; readonly requestId: string; readonly text: string }
  | { readonly kind: 'failed'; readonly requestId: string; readonly error: AppError }
  | { readonly kind: 'runs_elsewhere' }
  | { readonly kind: 'other_body' }
  /** The request was answered and billed, but there was no room to store its answer. */
  | { readonly kind: 'not_kept' }
  /** The signal ended the wait. */
  | { readonly kind: 'stopped' };

export interface IdempotentRun {
  /** Claim for the settlement of the request; the settlement adds a complete answer. */
  readonly claim: Pick<SettledClaim, 'keyId' | 'idempotencyKey' | 'bodyHash' | 'expiresAt'>;
  /**
   * Stores a large answer before the settlement, which then sets `keeps` without carrying the answer.
   * @throws AppError billing_unavailable if another request has the key by now, and errors of the database
   */
  keep(answer: Buffer): Promise<void>;
  /**
   * Must be called when the client's result is known.
   * @param settling the settlement that stores the answer; null if nothing is stored and a repetition runs again
   */
  end(result: SharedEnd, settling: Settling | null): void;
}

export interface ClaimWait {
  readonly signal: AbortSignal;
  /** Called with the id of the running request that the caller waits for. */
  readonly onWait: (requestId: string) => void;
}

/**
 * Idempotency-Key on the inference routes: one row in PostgreSQL per API key and Idempotency-Key. A request runs once
 * regardless of the number of gateways. Its answer is stored for a day, or three days for requests of batches; failures
 * are not stored. The statement that charges for an answer also stores it (settled-claims.ts), also from the spool:
 * a key is charged once, even if a gateway was taken for dead and another gateway ran its request meanwhile.
 */
export interface Idempotency {
  /**
   * @throws TooManyWaitError if too many claims of the API key wait; AppError billing_unavailable if the database does
   *   not answer in time whether the request may run
   */
  claim(claim: Claim, wait: ClaimWait): Promise<ClaimResult>;
  /** Reports that a spooled request is recorded, or will never be. */
  unspooled(requestId: string, isBooked: boolean): void;
  /**
   * Ends requests of a key permanently: those without an answer by now are never charged, even if spooled.
   * @returns those of the given Idempotency-Keys whose answers are stored
   */
  conclude(keyId: string, idempotencyKeys: readonly string[]): Promise<readonly string[]>;
  /** Returns the stored answer of a key, even if expired; null if there is none. */
  kept(keyId: string, idempotencyKey: string): Promise<KeptAnswer | null>;
  /** Deletes answers that nobody will ask for again. Their keys stay used: nothing more is charged for them. */
  forget(keyId: string, idempotencyKeys: readonly string[]): Promise<void>;
  /** Renews the leases of requests that run here; must be called three times per lease. */
  renew(): Promise<void>;
  /** Deletes expired rows and answers, one batch at a time. */
  deleteOld(): Promise<void>;
  /** Waits until the ends of finished requests are written, up to a time limit. */
  close(): Promise<void>;
}

/** An answer that was charged. */
export interface KeptAnswer {
  /** The request that was charged for the answer. */
  readonly requestId: string;
  /** The answer as sent, compressed with Zstandard. */
  readonly answer: Buffer;
}

export interface IdempotencyOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** This gateway's id. */
  readonly gatewayId: string;
  /** Time that a request counts as running after the last renewal by its gateway. */
  readonly leaseMs: number;
  /** Ids of dead gateways whose spool this gateway has taken over. */
  readonly formerIds: () => readonly string[];
  /** True if every spooled request is recorded. */
  readonly isReplayed: () => boolean;
}

export function createIdempotency(options: IdempotencyOptions): Idempotency {
  return new PostgresIdempotency(options);
}

interface Running {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly ended: Promise<SharedEnd>;
  /** Set once the request has ended; resolves when its row is written. Later requests do not join it. */
  over: Promise<void> | null;
}

/** Bounds of claims per API key, whose limits are not checked before. A claim may read megabytes from the database. */
const claimBounds = { atOncePerNameMax: 4, waitingPerNameMax: 100 };

class PostgresIdempotency implements Idempotency {
  readonly #log: Log;
  readonly #options: IdempotencyOptions;
  readonly #rows: IdempotencyRows;
  /** Requests that run here, by API key and Idempotency-Key. */
  readonly #running = new Map<string, Running>();
  /** Requests that have ended but are not known to be recorded, by API key and Idempotency-Key. */
  readonly #unsettled = new UnsettledAnswers();
  /** Ids of requests whose rows must be removed. */
  readonly #removals = new Set<string>();
  #removing: Promise<void> | null = null;
  readonly #writes = new Set<Promise<void>>();
  readonly #claimLimit = new ConcurrencyLimit(claimBounds);
  readonly #asking = new BoundedAsking(claimTimeoutMs);
  readonly #contact: LeaseContact;
  #isLapsed = false;
  /** True if the last write of an end failed; the log reports only the first failure. */
  #isFailing = false;

  constructor(options: IdempotencyOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#rows = new IdempotencyRows(options.db, options.gatewayId, options.leaseMs);
    this.#contact = new LeaseContact(options.clock, options.leaseMs);
  }

  async claim(claim: Claim, wait: ClaimWait): Promise<ClaimResult> {
    const name = `${claim.keyId} ${claim.idempotencyKey}`;
    const { bodyHash } = claim;
    for (;;) {
      const unsettled = this.#unsettled.get(name);
      if (unsettled !== undefined) {
        if (!unsettled.bodyHash.equals(bodyHash)) return { kind: 'other_body' };
        if (!unsettled.isDurable || unsettled.answer === null) throw unavailable();
        return replayOf(unsettled.requestId, unsettled.answer);
      }
      const running = this.#running.get(name);
      if (running === undefined) return this.#first(name, claim, bodyHash);
      if (running.over !== null) {
        await running.over;
        continue;
      }
      if (!running.bodyHash.equals(bodyHash)) return { kind: 'other_body' };
      wait.onWait(running.requestId);
      const ended = await Promise.race([running.ended, aborted(wait.signal)]);
      if (ended.kind === 'stopped') return ended;
      if (ended.kind === 'answer') return { ...ended, kind: 'replay' };
      if (ended.kind === 'error') return { ...ended, kind: 'failed' };
    }
  }

  unspooled(requestId: string, isBooked: boolean): void {
    if (this.#unsettled.delete(requestId) && !isBooked) void this.#write(this.#remove(requestId));
  }

  conclude(keyId: string, idempotencyKeys: readonly string[]): Promise<readonly string[]> {
    return this.#rows.conclude(keyId, idempotencyKeys);
  }

  async kept(keyId: string, idempotencyKey: string): Promise<KeptAnswer | null> {
    const row = await this.#rows.answer({ keyId, idempotencyKey });
    return row === null || row.answer === null ? null : { requestId: row.requestId, answer: row.answer };
  }

  forget(keyId: string, idempotencyKeys: readonly string[]): Promise<void> {
    return this.#rows.forget(keyId, idempotencyKeys);
  }

  async renew(): Promise<void> {
    const { formerIds, isReplayed } = this.#options;
    const former = this.#isLapsed ? [] : formerIds();
    const requestIds = [...this.#running.values()].map(({ requestId }) => requestId);
    const beganMs = this.#contact.begin();
    // Until the replay ends, one of their requests may be in the spool.
    const isOver = isReplayed();
    await this.#rows.renew([...requestIds, ...this.#unsettled.requestIds()], isOver ? [] : former);
    if (isOver && former.length > 0) await this.#rows.lapse(former);
    this.#isLapsed ||= isOver;
    this.#contact.answered(beganMs);
    if (this.#removals.size > 0) await this.#removeAll();
  }

  deleteOld(): Promise<void> {
    return this.#rows.deleteOld();
  }

  async close(): Promise<void> {
    await within(Promise.allSettled(this.#writes), claimTimeoutMs, () => undefined);
  }

  /** Claims for the first request with this key on this gateway: the row decides whether the request runs. */
  async #first(name: string, claim: Claim, bodyHash: Buffer): Promise<ClaimResult> {
    const { promise: ended, resolve: conclude } = Promise.withResolvers<SharedEnd>();
    const running: Running = { requestId: claim.requestId, bodyHash, ended, over: null };
    this.#running.set(name, running);
    const leave = (end: SharedEnd, written: Promise<void>): void => {
      conclude(end);
      running.over = written.then(() => void this.#running.delete(name));
    };
    try {
      const found = await this.#ask(claim, bodyHash);
      if ('expiresAt' in found) {
        const settled = { keyId: claim.keyId, idempotencyKey: claim.idempotencyKey, bodyHash, ...found };
        return { kind: 'run', run: this.#turn(name, claim.requestId, settled, leave) };
      }
      leave(found.kind === 'replay' ? { ...found, kind: 'answer' } : { kind: 'none' }, Promise.resolve());
      return found;
    } catch (error) {
      if (error instanceof TooManyWaitError) {
        leave({ kind: 'none' }, Promise.resolve());
        throw error;
      }
      // The row may belong to this request, and no caller knows it.
      if (!(error instanceof NotAskedError)) void this.#write(this.#remove(claim.requestId));
      const failure = unavailable(error);
      leave({ kind: 'error', requestId: claim.requestId, error: failure }, Promise.resolve());
      throw failure;
    }
  }

  /**
   * Returns the row's expiry if the row belongs to this request.
   * @throws if the database does not answer in time, or no slot becomes free in time
   */
  async #ask(claim: Claim, bodyHash: Buffer): Promise<ClaimResult | Taken> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      reject(new NotAskedError(`no free slot within ${claimTimeoutMs} ms`));
    }, claimTimeoutMs);
    const asked = this.#claimLimit.during(claim.keyId, () => {
      clearTimeout(timer);
      if (isLate) throw new NotAskedError('the caller no longer waits');
      return this.#asking.ask(
        () => this.#read(claim, bodyHash),
        () => void this.#write(this.#remove(claim.requestId)),
      );
    });
    try {
      return await Promise.race([asked, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #read(claim: Claim, bodyHash: Buffer): Promise<ClaimResult | Taken> {
    for (;;) {
      const mayTakeOver = this.#contact.mayTakeOver;
      const expiresAt = await this.#rows.take(claim, bodyHash, mayTakeOver);
      if (expiresAt !== null) return { expiresAt };
      const row = await this.#rows.read(claim);
      if (row === null) continue;
      if (!row.bodyHash.equals(bodyHash)) return { kind: 'other_body' };
      if (row.state !== 'done') return { kind: 'runs_elsewhere' };
      if (row.answer === null) return { kind: 'not_kept' };
      return replayOf(row.requestId, row.answer);
    }
  }

  /** Creates a turn. Joined requests get the end at once; later ones wait until the stored answer is known. */
  #turn(
    name: string,
    requestId: string,
    claim: IdempotentRun['claim'],
    leave: (end: SharedEnd, written: Promise<void>) => void,
  ): IdempotentRun {
    let isOver = false;
    return {
      claim,
      keep: (answer) => this.#keep(requestId, answer),
      end: (end, settling) => {
        if (isOver) return;
        isOver = true;
        if (settling === null) {
          leave(end, this.#write(this.#remove(requestId)));
          return;
        }
        this.#unsettled.add(name, { requestId, bodyHash: claim.bodyHash, settling });
        leave(end, Promise.resolve());
        settling.durable.then(
          (durable) => (durable === 'booked' ? this.unspooled(requestId, true) : this.#unsettled.spooled(requestId)),
          () => this.unspooled(requestId, false),
        );
      },
    };
  }

  async #keep(requestId: string, answer: Buffer): Promise<void> {
    if (!(await this.#rows.keep(requestId, answer))) throw unavailable();
  }

  /** Removes the row, with retries at each lease renewal. Beyond `removalsMax`, the row is free when its lease ends. */
  #remove(requestId: string): Promise<void> {
    if (this.#removals.size < removalsMax) this.#removals.add(requestId);
    return this.#removeAll();
  }

  /** Runs one statement at a time, however many callers wait for it. */
  #removeAll(): Promise<void> {
    this.#removing ??= this.#removeNow().finally(() => (this.#removing = null));
    return this.#removing;
  }

  async #removeNow(): Promise<void> {
    while (this.#removals.size > 0) {
      const requestIds = [...this.#removals].slice(0, removedAtOnce);
      await this.#rows.remove(requestIds);
      for (const requestId of requestIds) this.#removals.delete(requestId);
    }
  }

  /** Waits for a write; never rejects, and ends in bounded time. */
  #write(writing: Promise<void>): Promise<void> {
    const written = writing.then(
      () => void (this.#isFailing = false),
      (error: unknown) => {
        const message =
          'results of requests with an Idempotency-Key cannot be written; retrying, and repeated requests wait';
        if (!this.#isFailing) this.#log.warn({ err: error }, message);
        this.#isFailing = true;
      },
    );
    this.#writes.add(written);
    void written.then(() => this.#writes.delete(written));
    return within(written, claimTimeoutMs, () => undefined);
  }
}

/** Result for a row that belongs to the asking request. */
interface Taken {
  readonly expiresAt: string;
}

const removalsMax = 10_000;
const removedAtOnce = 500;
/** A claim is answered within this time, whatever the database does. */
const claimTimeoutMs = 5000;
const unavailableRetrySeconds = 2;

/** @param answer compressed */
async function replayOf(requestId: string, answer: Buffer): Promise<Extract<ClaimResult, { kind: 'replay' }>> {
  return { kind: 'replay', requestId, text: (await decompress(answer)).toString('latin1') };
}

function unavailable(cause?: unknown): AppError {
  const message =
    'The gateway cannot check at the moment whether a request with this Idempotency-Key was answered. Nothing was charged for this attempt; send the request again.';
  const headers = { 'retry-after': String(unavailableRetrySeconds) };
  return new AppError('billing_unavailable', { message, headers, ...(cause !== undefined && { cause }) });
}

function aborted(signal: AbortSignal): Promise<{ readonly kind: 'stopped' }> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve({ kind: 'stopped' });
    else signal.addEventListener('abort', () => resolve({ kind: 'stopped' }), { once: true });
  });
}

export type { Settling } from './unsettled-answers.ts';
