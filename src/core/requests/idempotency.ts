import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { TooManyWaitError, Turns } from '#base/turns.ts';
import { BoundedAsking, NotAskedError } from './bounded-asking.ts';
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
  /** SHA-256 of route and body: what is repeated is the same. */
  readonly bodyHash: Buffer;
}

/**
 * How a request that others have joined ended: its answer as latin1, its error, or nothing that they could share.
 * `requestId`: the request that ran, and was charged where any was.
 */
export type SharedEnd =
  | { readonly kind: 'answer'; readonly requestId: string; readonly text: string }
  | { readonly kind: 'error'; readonly requestId: string; readonly error: AppError }
  | { readonly kind: 'none' };

export type ClaimResult =
  /** The request is the first with this key, and must end its turn. */
  | { readonly kind: 'run'; readonly turn: IdempotentTurn }
  /** The answer of the first one, as latin1, and its id. */
  | { readonly kind: 'replay'; readonly requestId: string; readonly text: string }
  | { readonly kind: 'failed'; readonly requestId: string; readonly error: AppError }
  | { readonly kind: 'runs_elsewhere' }
  | { readonly kind: 'other_body' }
  /** It was answered and billed, and there was no room for its answer. */
  | { readonly kind: 'not_kept' }
  /** The waiting was ended by its signal. */
  | { readonly kind: 'stopped' };

export interface IdempotentTurn {
  /** For the settlement of the request, with the answer where it is complete. */
  readonly claim: Pick<SettledClaim, 'keyId' | 'idempotencyKey' | 'bodyHash' | 'expiresAt'>;
  /**
   * Keeps a large answer ahead of the settlement, which says then that it keeps one and does not carry it.
   * @throws AppError billing_unavailable where another request has the key by now, and what the database throws
   */
  keep(answer: Buffer): Promise<void>;
  /**
   * Must be called once it is known what its client gets.
   * @param settling what the settlement keeps; null where nothing is kept, and a repetition runs again
   */
  end(result: SharedEnd, settling: Settling | null): void;
}

export interface ClaimWait {
  readonly signal: AbortSignal;
  /** Called with the id of the running request that is waited for. */
  readonly onWait: (requestId: string) => void;
}

/**
 * Idempotency-Key on the inference routes: one row of PostgreSQL per API key and Idempotency-Key, so that a request
 * runs once however many gateways there are, and its answer is there for a day, that of a batch's request for three.
 * Failures are not kept. The answer is kept by the statement that charges for it (settled-claims.ts), from the spool
 * where it was spooled: a key is charged once, also where a gateway was taken for dead and another one ran its request
 * meanwhile.
 */
export interface Idempotency {
  /**
   * @throws TooManyWaitError when a key asks for more than it can be answered; AppError billing_unavailable where the
   *   database does not say in time whether the request may run
   */
  claim(claim: Claim, wait: ClaimWait): Promise<ClaimResult>;
  /** Tells of a request that was spooled that it is in the books, or will never be. */
  unspooled(requestId: string, isBooked: boolean): void;
  /**
   * Ends requests of a key for good: what has no answer by now is not charged any more, wherever it runs or is spooled.
   * @returns the Idempotency-Keys, of those given, whose answers are kept
   */
  conclude(keyId: string, idempotencyKeys: readonly string[]): Promise<readonly string[]>;
  /** The answer that is kept for a key, also where that has expired; null where there is none. */
  kept(keyId: string, idempotencyKey: string): Promise<KeptAnswer | null>;
  /** Drops answers that nobody will ask for again. Their keys stay used: nothing more is charged for them. */
  forget(keyId: string, idempotencyKeys: readonly string[]): Promise<void>;
  /** Renews the leases of what runs here; to be called three times in a lease. */
  renew(): Promise<void>;
  /** Deletes what has expired, a batch at a time. */
  deleteOld(): Promise<void>;
  /** Waits until what has ended is written. */
  close(): Promise<void>;
}

/** An answer that was charged. */
export interface KeptAnswer {
  /** The request that it was charged for. */
  readonly requestId: string;
  /** As it was sent, compressed with Zstandard. */
  readonly answer: Buffer;
}

export interface IdempotencyOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** This gateway's id. */
  readonly gatewayId: string;
  /** A request counts as running for so long after its gateway was last heard of. */
  readonly leaseMs: number;
  /** Ids of gateways that are gone and whose spool this one has taken over. */
  readonly formerIds: () => readonly string[];
  /** Whether everything that was spooled is in the books. */
  readonly isReplayed: () => boolean;
}

export function createIdempotency(options: IdempotencyOptions): Idempotency {
  return new ClaimBook(options);
}

interface Running {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly ended: Promise<SharedEnd>;
  /** Set once it has ended; resolves when its row says so. A request that comes now has not joined it. */
  over: Promise<void> | null;
}

/** Claims of one API key. Its limits are not asked before, and each claim may read megabytes from the database. */
const turnBounds = { atOnceMax: 4, waitingMax: 100 };

class ClaimBook implements Idempotency {
  readonly #log: Log;
  readonly #options: IdempotencyOptions;
  readonly #rows: IdempotencyRows;
  /** Requests that run here, by API key and Idempotency-Key. */
  readonly #running = new Map<string, Running>();
  /** Requests that have ended, and are not known to be in the books, by the same. */
  readonly #unsettled = new UnsettledAnswers();
  /** Ids of requests whose rows are to be removed. */
  readonly #removals = new Set<string>();
  #removing: Promise<void> | null = null;
  readonly #writes = new Set<Promise<void>>();
  readonly #turns = new Turns(turnBounds);
  readonly #asking = new BoundedAsking(claimTimeoutMs);
  readonly #contact: LeaseContact;
  #isLapsed = false;
  /** The last end that was to be written was not; said once. */
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
    // Until then one of their requests may be in the spool.
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
    await Promise.race([Promise.allSettled(this.#writes), timeout(claimTimeoutMs)]);
  }

  /** Claims for the first request on this gateway: the row decides whether it runs. */
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
        return { kind: 'run', turn: this.#turn(name, claim.requestId, settled, leave) };
      }
      leave(found.kind === 'replay' ? { ...found, kind: 'answer' } : { kind: 'none' }, Promise.resolve());
      return found;
    } catch (error) {
      if (error instanceof TooManyWaitError) {
        leave({ kind: 'none' }, Promise.resolve());
        throw error;
      }
      // The row may be this request's, and nobody was told so.
      if (!(error instanceof NotAskedError)) void this.#write(this.#remove(claim.requestId));
      const failure = unavailable(error);
      leave({ kind: 'error', requestId: claim.requestId, error: failure }, Promise.resolve());
      throw failure;
    }
  }

  /**
   * Says when the row expires where it is this request's.
   * @throws when the database does not answer in time, or there is no turn in time to ask it
   */
  async #ask(claim: Claim, bodyHash: Buffer): Promise<ClaimResult | Taken> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      reject(new NotAskedError(`no turn within ${claimTimeoutMs} ms`));
    }, claimTimeoutMs);
    const asked = this.#turns.during(claim.keyId, () => {
      clearTimeout(timer);
      if (isLate) throw new NotAskedError('nobody waits for this turn');
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

  /** Requests that joined get the end at once; later ones wait until it is known what is kept. */
  #turn(
    name: string,
    requestId: string,
    claim: IdempotentTurn['claim'],
    leave: (end: SharedEnd, written: Promise<void>) => void,
  ): IdempotentTurn {
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

  /** Tried again with the leases; beyond a bound it is over with its lease. */
  #remove(requestId: string): Promise<void> {
    if (this.#removals.size < removalsMax) this.#removals.add(requestId);
    return this.#removeAll();
  }

  /** One statement at a time, however many wait for it. */
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

  /** Never rejects, and ends in bounded time. */
  #write(writing: Promise<void>): Promise<void> {
    const written = writing.then(
      () => void (this.#isFailing = false),
      (error: unknown) => {
        const message =
          'ends of requests with an Idempotency-Key cannot be written; they are tried again, repetitions wait';
        if (!this.#isFailing) this.#log.warn({ err: error }, message);
        this.#isFailing = true;
      },
    );
    this.#writes.add(written);
    void written.then(() => this.#writes.delete(written));
    return Promise.race([written, timeout(claimTimeoutMs)]);
  }
}

/** The row is the request's that asked. */
interface Taken {
  readonly expiresAt: string;
}

const removalsMax = 10_000;
const removedAtOnce = 500;
/** A claim is answered in this time, whatever the database does. */
const claimTimeoutMs = 5000;
const unavailableRetrySeconds = 2;

/** @param answer compressed */
async function replayOf(requestId: string, answer: Buffer): Promise<Extract<ClaimResult, { kind: 'replay' }>> {
  return { kind: 'replay', requestId, text: (await decompress(answer)).toString('latin1') };
}

function unavailable(cause?: unknown): AppError {
  const message =
    'It cannot be said at the moment whether the request with this Idempotency-Key was answered; nothing was charged for this one. Ask again.';
  const headers = { 'retry-after': String(unavailableRetrySeconds) };
  return new AppError('billing_unavailable', { message, headers, ...(cause !== undefined && { cause }) });
}

function timeout(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

function aborted(signal: AbortSignal): Promise<{ readonly kind: 'stopped' }> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve({ kind: 'stopped' });
    else signal.addEventListener('abort', () => resolve({ kind: 'stopped' }), { once: true });
  });
}

export type { Settling } from './unsettled-answers.ts';
