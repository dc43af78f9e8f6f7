import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { answerTimeoutMs, RedisAwayError } from '#base/redis.ts';
import type { AdmissionStore, Reply } from './admission-store.ts';
import type { AdmitRequest, Settlement } from './contract.ts';
import { expiredScript, registerScript, renewScript, settleScript } from './redis-hold-scripts.ts';

/** What an admitted request holds, as its own gateway knows it. */
export interface OwnHold {
  readonly organizationId: string;
  readonly keyId: string;
  readonly estimatedTokens: number;
  readonly reservedTokens: string;
  readonly windowStart: string;
  readonly tokensPerMinute: number | null;
  heldMicroUsd: bigint;
}

type How = 'settle' | 'undo' | 'sweep';
type HoldRef = Pick<OwnHold, 'organizationId' | 'keyId'>;

interface Charge extends HoldRef {
  readonly requestId: string;
  readonly used: Settlement;
  readonly how: How;
}

interface Unsettled extends Charge {
  /** On the monotonic clock. */
  readonly notBeforeMs: number;
  isSending: boolean;
}

/** Settlements of one key. */
interface Batch extends HoldRef {
  readonly unsettled: Unsettled[];
}

export interface HoldLeasesOptions {
  readonly store: AdmissionStore;
  readonly gatewayId: string;
  readonly leaseMs: number;
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface AddedHold {
  readonly heldMicroUsd: bigint;
  readonly reservedTokens: string;
  readonly reply: Reply;
}

const nothingUsed: Settlement = { chargedPicoUsd: 0n, tokens: 0 };
const sweepBatchMax = 100;
/** So many settlements keep Redis from others for about a millisecond. */
const batchMax = 50;
const retryMsMin = 200;
/** Settlements that are kept for another try, about 5 MB; what is beyond them the sweep finds once its lease is over. */
const unsettledMax = 10_000;
/** An admission that nobody knows of is surely too late by then: its own deadline is half of this. */
const undoAfterMs = 2 * answerTimeoutMs;
/** An organization whose balance was not read for this long has nothing left to sweep. */
const indexKeptMs = 2 * 24 * 3_600_000;

/**
 * The holds and slots of what runs in this gateway. They are leases: a gateway that stops to renew them gives its slots
 * back by the clock, but a hold only by what the books say, and only once its gateway is known to be gone.
 */
export class HoldLeases {
  readonly #options: HoldLeasesOptions;
  readonly #own = new Map<string, OwnHold>();
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

  constructor(options: HoldLeasesOptions) {
    this.#options = options;
  }

  add(request: AdmitRequest, { heldMicroUsd, reservedTokens, reply }: AddedHold): void {
    const { organizationId, keyId, limits, estimatedTokens, requestId } = request;
    const windowStart = reply.rest[0] ?? '0';
    const { tokensPerMinute } = limits;
    const hold = { organizationId, keyId, estimatedTokens, reservedTokens, windowStart, tokensPerMinute, heldMicroUsd };
    this.#own.set(requestId, hold);
  }

  /** What Redis keeps of it: "key gateway estimate reserved window limit". */
  #noteOf({ keyId, estimatedTokens, reservedTokens, windowStart, tokensPerMinute }: OwnHold): string {
    const of = [keyId, this.#options.gatewayId, estimatedTokens, reservedTokens, windowStart, tokensPerMinute ?? '-'];
    return of.join(' ');
  }

  find(requestId: string): OwnHold | undefined {
    return this.#own.get(requestId);
  }

  keysRunning(): readonly string[] {
    return [...new Set([...this.#own.values()].map(({ keyId }) => keyId))];
  }

  settle(requestId: string, used: Settlement): void {
    const hold = this.#own.get(requestId);
    if (hold === undefined) return;
    this.#own.delete(requestId);
    const { organizationId, keyId } = hold;
    const ref = { requestId, organizationId, keyId };
    const unsettled = { ...ref, used, how: 'settle', notBeforeMs: 0, isSending: false } as const;
    this.#unsettled.set(requestId, unsettled);
    this.#batch(unsettled);
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

  /** Takes an admission back of which nobody knows whether it happened. */
  undo({ requestId, organizationId, keyId }: AdmitRequest): void {
    const notBeforeMs = this.#options.clock.monotonicMs() + undoAfterMs;
    const ref = { requestId, organizationId, keyId };
    this.#keep({ ...ref, used: nothingUsed, how: 'undo', notBeforeMs, isSending: false });
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

  async renew(): Promise<void> {
    await this.#retry();
    const groups = new Map<string, { ref: OwnHold; ids: string[] }>();
    for (const [id, hold] of this.#own) {
      const group = groups.get(hold.keyId) ?? { ref: hold, ids: [] };
      group.ids.push(id);
      groups.set(hold.keyId, group);
    }
    // Written one behind the other without waiting: one pipeline.
    await Promise.all([...groups.values()].map(({ ref, ids }) => this.#renewKey(ref, ids)));
  }

  async register(organizationId: string): Promise<void> {
    const byKey = new Map<string, string[]>();
    for (const [id, hold] of this.#own) {
      if (hold.organizationId !== organizationId) continue;
      const args = byKey.get(hold.keyId) ?? [];
      args.push(id, this.#noteOf(hold), hold.heldMicroUsd.toString());
      byKey.set(hold.keyId, args);
    }
    const { store, leaseMs } = this.#options;
    const { wallet, holds, money, leases, loading } = store.organization(organizationId);
    const writing = [...byKey].map(([keyId, args]) => {
      const { slots, monthLoading, use } = store.use(organizationId, keyId);
      const keys = [wallet, holds, money, leases, slots, loading, monthLoading, use];
      return store.run(registerScript, keys, [String(leaseMs), ...args]);
    });
    this.#holdSettlements(organizationId, writing);
    await Promise.all(writing);
  }

  async sweep(): Promise<void> {
    const { store, liveGateways } = this.#options;
    const oldMs = Math.floor((await store.nowMs()) - indexKeptMs);
    await store.redis.command('ZREMRANGEBYSCORE', store.index, '-inf', String(oldMs));
    const organizationIds = (await store.redis.command('ZRANGE', store.index, '0', '-1')) as string[];
    let live: ReadonlySet<string> | null = null;
    for (const organizationId of organizationIds) {
      const { leases, holds } = store.organization(organizationId);
      const { rest } = await store.run(expiredScript, [leases, holds], [String(sweepBatchMax)]);
      if (rest.length === 0) continue;
      live ??= await liveGateways();
      await this.#sweepHolds(organizationId, rest, live);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#retryTimer !== null) clearTimeout(this.#retryTimer);
    this.flush();
    await Promise.all(this.#sending);
    await this.#retry();
  }

  /**
   * A script may be sent twice before it runs (Redis does not know it yet, or was late). A hold that was settled in
   * between would be put back by a registration, for ever: settlements wait for the registrations that may carry them.
   */
  #holdSettlements(organizationId: string, writing: readonly Promise<unknown>[]): void {
    if (writing.length === 0) return;
    const before = this.#registering.get(organizationId);
    const through = Promise.allSettled([before, ...writing]).then(() => {
      if (this.#registering.get(organizationId) === through) this.#registering.delete(organizationId);
    });
    this.#registering.set(organizationId, through);
  }

  async #renewKey(ref: HoldRef, ids: readonly string[]): Promise<void> {
    const { store, leaseMs } = this.#options;
    const { holds, leases } = store.organization(ref.organizationId);
    const { slots } = store.use(ref.organizationId, ref.keyId);
    const { rest } = await store.run(renewScript, [holds, leases, slots], [String(leaseMs), ...ids]);
    if (rest.some((id) => this.#own.has(id))) await this.register(ref.organizationId);
  }

  async #sweepHolds(organizationId: string, notes: readonly string[], live: ReadonlySet<string>): Promise<void> {
    const lost = new Map<string, string>();
    for (let index = 0; index + 1 < notes.length; index += 2) {
      const [requestId = '', note = ''] = notes.slice(index, index + 2);
      const [keyId = '', gatewayId = ''] = note.split(' ');
      if (this.#isLost(requestId, gatewayId, live)) lost.set(requestId, keyId);
    }
    if (lost.size === 0) return;
    const settled = await this.#options.findSettled(organizationId, [...lost.keys()]);
    for (const [requestId, keyId] of lost) {
      const used = settled.get(requestId) ?? nothingUsed;
      await this.#send([{ requestId, organizationId, keyId, used, how: 'sweep' }]);
    }
    this.#options.log.info({ organizationId, holds: lost.size }, 'holds that no gateway has were settled by the books');
  }

  /** A lease that ran out: its gateway is gone, or it is this one, which has no such request. */
  #isLost(requestId: string, gatewayId: string, live: ReadonlySet<string>): boolean {
    if (gatewayId !== this.#options.gatewayId) return !live.has(gatewayId);
    return !this.#own.has(requestId) && !this.#unsettled.has(requestId);
  }

  #retryLater(): void {
    if (this.#retryTimer !== null || this.#isClosed) return;
    this.#retryTimer = setTimeout(() => {
      this.#retryTimer = null;
      this.#retry().catch((error: unknown) => this.#options.log.error({ err: error }, 'settling again failed'));
    }, this.#retryMs).unref();
  }

  #retry(): Promise<void> {
    this.#retrying ??= this.#retryAll().finally(() => (this.#retrying = null));
    return this.#retrying;
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
    const failed = this.#later.length > 0 || due.some(({ requestId }) => this.#unsettled.has(requestId));
    this.#retryMs = failed ? Math.min(2 * this.#retryMs, Math.max(retryMsMin, this.#options.leaseMs / 3)) : retryMsMin;
    if (this.#unsettled.size > 0 || this.#later.length > 0) this.#retryLater();
  }

  #batch(unsettled: Unsettled): void {
    if (unsettled.isSending) return;
    unsettled.isSending = true;
    const { organizationId, keyId } = unsettled;
    if (this.#batches.size === 0) this.#options.store.redis.atRoundEnd(() => this.flush());
    const open = this.#batches.get(keyId);
    if (open === undefined) this.#batches.set(keyId, { organizationId, keyId, unsettled: [unsettled] });
    else {
      open.unsettled.push(unsettled);
      if (open.unsettled.length >= batchMax) this.flush();
    }
  }

  /** For another try. */
  #keep(unsettled: Unsettled): void {
    const { requestId } = unsettled;
    if (this.#unsettled.size < unsettledMax) this.#unsettled.set(requestId, unsettled);
    else this.#unsettled.delete(requestId);
    this.#retryLater();
  }

  async #confirm({ organizationId, unsettled }: Batch): Promise<void> {
    try {
      const registering = this.#registering.get(organizationId);
      if (registering !== undefined) await registering;
      await this.#send(unsettled);
      for (const one of unsettled) this.#sent(one, null);
    } catch (error) {
      if (unsettled.length === 1 || error instanceof RedisAwayError) {
        for (const one of unsettled) this.#sent(one, error);
        return;
      }
      // One at fault must not take the others with it; those that are settled by now are found to be gone.
      for (const one of unsettled) await this.#confirm({ organizationId, keyId: one.keyId, unsettled: [one] });
    }
  }

  #sent(unsettled: Unsettled, error: unknown): void {
    unsettled.isSending = false;
    if (error instanceof RedisAwayError) return this.#keep(unsettled);
    const { requestId } = unsettled;
    this.#unsettled.delete(requestId);
    if (error !== null) this.#options.log.error({ err: error, requestId }, 'a settlement was refused');
  }

  /** @param charges of one key */
  async #send(charges: readonly Charge[]): Promise<void> {
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
}
