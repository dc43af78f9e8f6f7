import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { answerTimeoutMs, RedisAwayError } from '#base/redis.ts';
import type { AdmissionStore } from './admission-store.ts';
import type { KeyRef, Settlement } from './contract.ts';
import { settleScript } from './redis-hold-scripts.ts';

/** A request as Redis must be told of it. */
export interface RequestRef extends Pick<KeyRef, 'organizationId' | 'keyId'> {
  readonly requestId: string;
}

/** What becomes of a hold; see the script. */
export type How = 'settle' | 'replay' | 'sweep' | 'spool' | 'undo' | `local:${number}:${string}`;

export interface Charge extends RequestRef {
  readonly used: Settlement;
  readonly how: How;
}

interface Unsettled extends Charge {
  /** On the monotonic clock. */
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
/** So many settlements keep Redis from others for about a millisecond. */
const batchMax = 50;
const retryMsMin = 200;
/** Settlements that are kept for another try, about 5 MB; what is beyond them the sweep finds once its lease is over. */
const unsettledMax = 10_000;
/** An admission that nobody knows of is surely too late by then: its own deadline is half of this. */
const undoAfterMs = 2 * answerTimeoutMs;

/** Tells Redis what became of holds, in groups, again and again until it has heard it. */
export class Settlements {
  readonly #options: SettlementsOptions;
  /** Settlements that Redis has not confirmed, those on their way included. */
  readonly #unsettled = new Map<string, Unsettled>();
  readonly #sending = new Set<Promise<void>>();
  /** Settlements of this moment, by key: the books make requests durable in groups, and they are settled as such. */
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

  /** Whether Redis has still to be told of a request. */
  has(requestId: string): boolean {
    return this.#unsettled.has(requestId);
  }

  add({ requestId, organizationId, keyId, used, how }: Charge): void {
    const unsettled = { requestId, organizationId, keyId, used, how, notBeforeMs: 0, isSending: false };
    this.#unsettled.set(requestId, unsettled);
    this.#batch(unsettled);
  }

  /** Takes an admission back of which nobody knows whether it happened. */
  undo({ requestId, organizationId, keyId }: RequestRef): void {
    const notBeforeMs = this.#options.clock.monotonicMs() + undoAfterMs;
    const ref = { requestId, organizationId, keyId };
    this.#unsettled.set(requestId, { ...ref, used: nothingUsed, how: 'undo', notBeforeMs, isSending: false });
    this.#retryLater();
  }

  /** Sends the settlements of this moment: whatever is asked of Redis after them must find them done. */
  flush(): void {
    if (this.#batches.size === 0) return;
    const batches = this.#batches;
    this.#batches = new Map();
    for (const batch of batches.values()) {
      const sending = this.#confirm(batch).finally(() => this.#sending.delete(sending));
      this.#sending.add(sending);
    }
  }

  /** Does something now, or as soon as Redis can be asked again. */
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
   * A script may be sent twice before it runs (Redis does not know it yet, or was late). A hold that was settled in
   * between would be put back by a registration, for ever: settlements wait for the registrations that may carry them.
   */
  holdBack(organizationId: string, writing: readonly Promise<unknown>[]): void {
    if (writing.length === 0) return;
    const before = this.#registering.get(organizationId);
    const through = Promise.allSettled([before, ...writing]).then(() => {
      if (this.#registering.get(organizationId) === through) this.#registering.delete(organizationId);
    });
    this.#registering.set(organizationId, through);
  }

  /** Tries again what Redis has not heard yet. */
  retry(): Promise<void> {
    this.#retrying ??= this.#retryAll().finally(() => (this.#retrying = null));
    return this.#retrying;
  }

  /** @param charges of one key */
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
      this.retry().catch((error: unknown) => this.#options.log.error({ err: error }, 'settling again failed'));
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

  /** Not where the request has been settled since it was spooled, say. */
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
      // One at fault must not take the others with it; those that are settled by now are found to be gone.
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
    if (error !== null) this.#options.log.error({ err: error, requestId }, 'a settlement was refused');
  }
}
