import type { Db } from '#base/db.ts';
import type { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { Turns } from '#base/turns.ts';
import { decompress } from './compress.ts';
import { IdempotencyRows, type KeptRow } from './idempotency-rows.ts';

/** A request that carries an Idempotency-Key. */
export interface Claim {
  readonly organizationId: string;
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly requestId: string;
  /** SHA-256 of route and body: what is repeated is the same. */
  readonly bodyHash: Buffer;
}

/** How a request that others have joined ended: its answer as latin1, its error, or nothing that they could share. */
export type SharedEnd =
  | { readonly kind: 'answer'; readonly text: string }
  | { readonly kind: 'error'; readonly error: AppError }
  | { readonly kind: 'none' };

export type ClaimResult =
  /** The request is the first with this key, and must end its turn. */
  | { readonly kind: 'run'; readonly turn: IdempotentTurn }
  /** The answer of the first one, as latin1. */
  | { readonly kind: 'replay'; readonly text: string }
  | { readonly kind: 'failed'; readonly error: AppError }
  | { readonly kind: 'runs_elsewhere' }
  | { readonly kind: 'other_body' }
  /** The waiting was ended by its signal. */
  | { readonly kind: 'stopped' };

export interface IdempotentTurn {
  /** Keeps the answer before it is booked; it counts from then on as soon as the request's record is there. */
  keep(text: string): Promise<void>;
  /** Must be called once the end is in the books, or known not to be. */
  end(result: SharedEnd): void;
}

export interface ClaimWait {
  readonly signal: AbortSignal;
  /** Called when there is a running request to wait for. */
  readonly onWait: () => void;
}

/**
 * Idempotency-Key on the inference routes: one row of PostgreSQL per API key and Idempotency-Key, so that a request
 * runs once however many gateways there are, and its answer is there for a day. Failures are not kept. A gateway that
 * dies leaves a row whose lease runs out: what it had booked is answered, the rest runs again.
 */
export interface Idempotency {
  /** @throws TooManyWaitError when a key asks for more than it can be answered */
  claim(claim: Claim, wait: ClaimWait): Promise<ClaimResult>;
  /** Renews the leases of what runs here; to be called three times in a lease. */
  renew(): Promise<void>;
  /** Ends the leases of gateways that are gone. */
  lapse(gatewayIds: readonly string[]): Promise<void>;
  /** Deletes what has expired, a batch at a time. */
  deleteOld(): Promise<void>;
  /** Waits until what has ended is written. */
  close(): Promise<void>;
}

export interface IdempotencyOptions {
  readonly db: Db;
  readonly log: Log;
  /** This gateway's id. */
  readonly gatewayId: string;
  /** A request counts as running for so long after its gateway was last heard of. */
  readonly leaseMs: number;
  /** Whether a request is in the books. */
  readonly isBooked: (request: Pick<Claim, 'organizationId' | 'keyId' | 'requestId'>) => Promise<boolean>;
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
  readonly #isBooked: IdempotencyOptions['isBooked'];
  readonly #rows: IdempotencyRows;
  /** Requests that run here, by API key and Idempotency-Key. */
  readonly #running = new Map<string, Running>();
  readonly #writes = new Set<Promise<void>>();
  readonly #turns = new Turns(turnBounds);

  constructor({ db, log, gatewayId, leaseMs, isBooked }: IdempotencyOptions) {
    this.#log = log;
    this.#isBooked = isBooked;
    this.#rows = new IdempotencyRows(db, gatewayId, leaseMs);
  }

  async claim(claim: Claim, wait: ClaimWait): Promise<ClaimResult> {
    const name = `${claim.keyId} ${claim.idempotencyKey}`;
    const { bodyHash } = claim;
    for (;;) {
      const running = this.#running.get(name);
      if (running === undefined) return this.#first(name, claim, bodyHash);
      if (running.over !== null) {
        await running.over;
        continue;
      }
      if (!running.bodyHash.equals(bodyHash)) return { kind: 'other_body' };
      wait.onWait();
      const ended = await Promise.race([running.ended, aborted(wait.signal)]);
      if (ended.kind === 'stopped') return ended;
      if (ended.kind === 'answer') return { kind: 'replay', text: ended.text };
      if (ended.kind === 'error') return { kind: 'failed', error: ended.error };
    }
  }

  async renew(): Promise<void> {
    const requestIds = [...this.#running.values()].map(({ requestId }) => requestId);
    if (requestIds.length > 0) await this.#rows.renew(requestIds);
  }

  async lapse(gatewayIds: readonly string[]): Promise<void> {
    if (gatewayIds.length > 0) await this.#rows.lapse(gatewayIds);
  }

  deleteOld(): Promise<void> {
    return this.#rows.deleteOld();
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#writes);
  }

  /** Claims for the first request on this gateway: the row decides whether it runs. */
  async #first(name: string, claim: Claim, bodyHash: Buffer): Promise<ClaimResult> {
    const { promise: ended, resolve: conclude } = Promise.withResolvers<SharedEnd>();
    const running: Running = { requestId: claim.requestId, bodyHash, ended, over: null };
    this.#running.set(name, running);
    const leave = (end: SharedEnd, written: Promise<void>): void => {
      conclude(end);
      running.over = this.#write(written).then(() => void this.#running.delete(name));
    };
    try {
      const found = await this.#turns.during(claim.keyId, () => this.#ask(claim, bodyHash));
      if (found === null) return { kind: 'run', turn: this.#turn(claim, leave) };
      leave(found.kind === 'replay' ? { kind: 'answer', text: found.text } : { kind: 'none' }, Promise.resolve());
      return found;
    } catch (error) {
      leave({ kind: 'none' }, Promise.resolve());
      throw error;
    }
  }

  /** Null when the row is this request's. */
  async #ask(claim: Claim, bodyHash: Buffer): Promise<ClaimResult | null> {
    for (;;) {
      if (await this.#rows.take(claim, bodyHash)) return null;
      const row = await this.#rows.read(claim);
      if (row === null) continue;
      const isDone = row.state === 'done' || (row.lapsed && (await this.#settleLapsed(claim, row)));
      if (!isDone && row.lapsed) continue;
      if (!row.bodyHash.equals(bodyHash)) return { kind: 'other_body' };
      if (!isDone) return { kind: 'runs_elsewhere' };
      if (row.answer === null) throw new Error('the row of an idempotency key is done, but has no answer');
      return { kind: 'replay', text: (await decompress(row.answer)).toString('latin1') };
    }
  }

  /** A gateway died between keeping an answer and saying so: the books know whether the answer counts. */
  async #settleLapsed({ organizationId, keyId }: Claim, { requestId, answer }: KeptRow): Promise<boolean> {
    if (answer === null) return false;
    const isBooked = await this.#isBooked({ organizationId, keyId, requestId });
    if (isBooked) await this.#rows.finish(requestId);
    else await this.#rows.remove(requestId);
    return isBooked;
  }

  /** Requests that joined get the end at once; later ones wait until the row has it. */
  #turn({ requestId }: Claim, leave: (end: SharedEnd, written: Promise<void>) => void): IdempotentTurn {
    let isKept = false;
    let isOver = false;
    return {
      keep: async (text) => {
        try {
          isKept = await this.#rows.keep(requestId, Buffer.from(text, 'latin1'));
        } catch (error) {
          this.#log.warn(
            { err: error, requestId },
            'an answer could not be kept under its Idempotency-Key; a repetition runs again',
          );
        }
      },
      end: (end) => {
        if (isOver) return;
        isOver = true;
        // A kept answer whose booking is not known stays as it is: once its lease is over, the books are asked.
        if (isKept && end.kind !== 'answer') leave(end, Promise.resolve());
        else leave(end, isKept ? this.#rows.finish(requestId) : this.#rows.remove(requestId));
      },
    };
  }

  async #write(writing: Promise<void>): Promise<void> {
    this.#writes.add(writing);
    try {
      await writing;
    } catch (error) {
      this.#log.warn(
        { err: error },
        'the end of a request with an Idempotency-Key could not be written; a repetition waits until its lease is over',
      );
    }
    this.#writes.delete(writing);
  }
}

function aborted(signal: AbortSignal): Promise<{ readonly kind: 'stopped' }> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve({ kind: 'stopped' });
    else signal.addEventListener('abort', () => resolve({ kind: 'stopped' }), { once: true });
  });
}
