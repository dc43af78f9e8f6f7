import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { answerTimeoutMs, RedisAwayError } from '#base/redis/redis.ts';
import type { KeyRef, Settlement } from '#core/admission/contract/contract.ts';
import type { AdmissionStore } from './admission-store.ts';
import { settleScript } from './hold-scripts.ts';

/** A request with the ids that Redis needs. */
export interface RequestRef extends Pick<KeyRef, 'organizationId' | 'keyId'> {
  readonly requestId: string;
}

/** Kind of a settlement; see `settleScript`. */
export type How = 'settle' | 'replay' | 'sweep' | 'spool' | 'undo' | `local:${number}:${string}`;

export interface Charge extends RequestRef {
  readonly used: Settlement;
  readonly how: How;
}

interface Unsettled extends Charge {
  /** Earliest time to send, on the monotonic clock. */
  readonly notBeforeMs: number;
  isSending: boolean;
}

/** Settlements of one key. */
interface Batch {
  readonly organizationId: string;
  readonly unsettled: Unsettled[];
}

export interface SettlementsOptions {
  readonly store: AdmissionStore;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

export const nothingUsed: Settlement = { chargedPicoUsd: 0n, tokens: 0 };
/** Maximum number of settlements in a batch. They block Redis for about a millisecond. */
const batchMax = 50;
const retryMsMin = 200;
/**
 * Maximum number of settlements kept for another try, about 5 MB. The sweep finds the others once their lease expires.
 */
const unsettledMax = 10_000;
/** Milliseconds after which an unconfirmed admission is surely too late: its own deadline is half of this. */
const undoAfterMs = 2 * answerTimeoutMs;

/** Sends settlements of holds to Redis in groups, and repeats them until Redis has confirmed them. */
export class Settlements {
  readonly #options: SettlementsOptions;
  /** Settlements that Redis has not confirmed, including those on their way. */
  readonly #unsettled = new Map<string, Unsettled>();
  readonly #sending = new Set<Promise<void>>();
  /**
   * Settlements of this round of the event loop, by key: the database makes requests durable in groups, and they are
   * settled in groups.
   */
  #batches = new Map<string, Batch>();
  /** Registrations on their way, by organization. */
  readonly #registering = new Map<string, Promise<unknown>>();
  #later: (() => Promise<unknown>)[] = [];
  #retrying: Promise<void> | null = null;
  #retryTimer: NodeJS.Timeout | null = null;
  #retryMs = retryMsMin;
  #isClosed = false;

  constructor(options: SettlementsOptions) {
    this.#options = options;
  }

  /** True if Redis has not confirmed the settlement of a request. */
  has(requestId: string): boolean {
    return this.#unsettled.has(requestId);
  }

  add({ requestId, organizationId, keyId, used, how }: Charge): void {
    const unsettled = { requestId, organizationId, keyId, used, how, notBeforeMs: 0, isSending: false };
    this.#unsettled.set(requestId, unsettled);
    this.#batch(unsettled);
  }

  /** Takes back an admission whose result is unknown. */
  undo({ requestId, organizationId, keyId }: RequestRef): void {
    const notBeforeMs = this.#options.clock.monotonicMs() + undoAfterMs;
    const ref = { requestId, organizationId, keyId };
    this.#unsettled.set(requestId, { ...ref, used: nothingUsed, how: 'undo', notBeforeMs, isSending: false });
    this.#retryLater();
  }

  /** Sends the settlements of this round: later calls to Redis must find them applied. */
  flush(): void {
    if (this.#batches.size === 0) return;
    const batches = this.#batches;
    this.#batches = new Map();
    for (const batch of batches.values()) {
      const sending = this.#confirm(batch).finally(() => this.#sending.delete(sending));
      this.#sending.add(sending);
    }
  }

  /** Runs a task now, or as soon as Redis answers again. */
  async sure(task: () => Promise<unknown>): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (!(error instanceof RedisAwayError)) throw error;
      this.#later.push(task);
      this.#retryLater();
    }
  }

  /**
   * Makes settlements wait for the registrations that may carry their holds. A script may be sent twice before it runs,
   * because Redis did not have it or was late. A registration would then restore a hold that was settled in between,
   * permanently.
   */
  holdBack(organizationId: string, writing: readonly Promise<unknown>[]): void {
    if (writing.length === 0) return;
    const before = this.#registering.get(organizationId);
    const through = Promise.allSettled([before, ...writing]).then(() => {
      if (this.#registering.get(organizationId) === through) this.#registering.delete(organizationId);
    });
    this.#registering.set(organizationId, through);
  }

  /** Retries what Redis has not confirmed. */
  retry(): Promise<void> {
    this.#retrying ??= this.#retryAll().finally(() => (this.#retrying = null));
    return this.#retrying;
  }

  /** @param charges settlements of one key */
  async send(charges: readonly Charge[]): Promise<void> {
    const [first] = charges;
    if (first === undefined) return;
    const { store } = this.#options;
    let lines = '';
    for (const { requestId, used, how } of charges) {
      const micro = used.chargedPicoUsd / PICO_PER_MICRO;
      const pico = used.chargedPicoUsd % PICO_PER_MICRO;
      lines += `${lines === '' ? '' : '\n'}${requestId}\n${micro}\n${pico}\n${used.tokens}\n${how}`;
    }
    await store.runLines(settleScript, store.requests(first.organizationId, first.keyId).settle, lines);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#retryTimer !== null) clearTimeout(this.#retryTimer);
    this.flush();
    await Promise.all(this.#sending);
    await this.retry();
  }

  #retryLater(): void {
    if (this.#retryTimer !== null || this.#isClosed) return;
    this.#retryTimer = setTimeout(() => {
      this.#retryTimer = null;
      this.retry().catch((error: unknown) =>
        this.#options.log.error(
          { err: error },
          'wallet holds of ended requests could not be released in Redis; the charges are in PostgreSQL, and the holds are released later',
        ),
      );
    }, this.#retryMs).unref();
  }

  async #retryAll(): Promise<void> {
    const later = this.#later;
    this.#later = [];
    for (const task of later) await this.sure(task);
    const nowMs = this.#options.clock.monotonicMs();
    const due = [...this.#unsettled.values()].filter(({ notBeforeMs }) => notBeforeMs <= nowMs);
    for (const unsettled of due) this.#batch(unsettled);
    this.flush();
    await Promise.all(this.#sending);
    const failed = this.#later.length > 0 || due.some((unsettled) => this.#isKept(unsettled));
    this.#retryMs = failed ? Math.min(2 * this.#retryMs, Math.max(retryMsMin, this.#options.leaseMs / 3)) : retryMsMin;
    if (this.#unsettled.size > 0 || this.#later.length > 0) this.#retryLater();
  }

  #batch(unsettled: Unsettled): void {
    if (unsettled.isSending) return;
    unsettled.isSending = true;
    const { organizationId, keyId } = unsettled;
    if (this.#batches.size === 0) this.#options.store.redis.atRoundEnd(() => this.flush());
    const open = this.#batches.get(keyId);
    if (open === undefined) this.#batches.set(keyId, { organizationId, unsettled: [unsettled] });
    else {
      open.unsettled.push(unsettled);
      if (open.unsettled.length >= batchMax) this.flush();
    }
  }

  /** False if, for example, the request has been settled since it was spooled. */
  #isKept(unsettled: Unsettled): boolean {
    return this.#unsettled.get(unsettled.requestId) === unsettled;
  }

  async #confirm({ organizationId, unsettled }: Batch): Promise<void> {
    try {
      const registering = this.#registering.get(organizationId);
      if (registering !== undefined) await registering;
      await this.send(unsettled);
      for (const one of unsettled) this.#sent(one, null);
    } catch (error) {
      if (unsettled.length === 1 || error instanceof RedisAwayError) {
        for (const one of unsettled) this.#sent(one, error);
        return;
      }
      // One faulty settlement must not fail the others. Those that are settled by now have no hold any more.
      for (const one of unsettled) await this.#confirm({ organizationId, unsettled: [one] });
    }
  }

  #sent(unsettled: Unsettled, error: unknown): void {
    unsettled.isSending = false;
    if (!this.#isKept(unsettled)) return;
    const { requestId } = unsettled;
    if (error instanceof RedisAwayError) {
      if (this.#unsettled.size > unsettledMax) this.#unsettled.delete(requestId);
      this.#retryLater();
      return;
    }
    this.#unsettled.delete(requestId);
    if (error !== null)
      this.#options.log.error(
        { err: error, requestId },
        'Redis rejected the release of the wallet hold of an ended request; the charge is in PostgreSQL, and the hold is released later',
      );
  }
}
