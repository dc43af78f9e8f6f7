import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { RedisAwayError, type RedisStore } from '#base/redis/redis.ts';
import {
  type Admission,
  type AdmitRequest,
  type AdmitResult,
  LedgerHealth,
  budgetsOf,
  type Extension,
  Gathering,
  type HardBudget,
  type HardBudgets,
  type KeyRef,
  type ModelMove,
  noBudgets,
  type ProjectLimits,
  type Settlement,
  type Wanted,
} from '#core/admission/contract/contract.ts';
import { Outages } from '#core/admission/outage/outage.ts';
import {
  AdmissionStore,
  type Books,
  extendBoundScript,
  extendScript,
  HoldLeases,
  LastKnown,
  OrphanedHolds,
  type OwnHold,
  readUse,
  RedisAsking,
  RedisBooks,
  RedisMoves,
  viewScript,
} from '#core/admission/redis/redis.ts';
import { type LimitsView, viewLimits } from '#core/limits/limits.ts';

export interface RedisAdmissionOptions {
  readonly store: RedisStore;
  /** Start of all names in Redis: one for each database. */
  readonly prefix: string;
  readonly gatewayId: string;
  readonly leaseMs: number;
  /** Milliseconds for which known values may be used while the database does not answer. */
  readonly staleMs?: number;
  readonly books: Books;
  /** Budgets. Absent: no spender has any. */
  readonly budgets?: HardBudgets;
  /** Limits of projects. Absent: no project has any. */
  readonly projectLimits?: ProjectLimits;
  /**
   * Has the other gateways call `register` with this name, and waits for them for a limited time.
   * @returns ids of the live gateways that did not answer
   */
  readonly collect: (organizationId: string) => Promise<readonly string[]>;
  /** Returns the requests among these that the database has, with their charges and tokens. */
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  /** Returns the gateways that are alive according to the database. */
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Admission of several gateways, in Redis. While Redis is unavailable each gateway decides on its own, within its share
 * of the limits and wallets, and reports to Redis before Redis decides again: see outage.ts.
 */
export interface RedisAdmission extends Admission {
  /**
   * Announces this gateway. To be called once it is listed as live, and before it serves: the others must know of it
   * when Redis falls silent.
   */
  enter(): Promise<void>;
  /**
   * Renews the leases of requests that run here, and sends unconfirmed settlements again; to be called every `renewMs`.
   */
  renew(): Promise<void>;
  readonly renewMs: number;
  /** Settles or releases holds of stopped gateways, by the database's records. */
  sweep(): Promise<void>;
  /**
   * Sends Redis, which may have lost it, the data of this gateway for an organization, or for the name passed to
   * `collect`.
   */
  register(organizationId: string): Promise<void>;
  /** Has the balance read again after a credit or adjustment of `picoUsd` pico-dollars. */
  credited(organizationId: string, picoUsd: bigint): Promise<void>;
  /** Has every gateway reject the key from now on; if Redis is unavailable, once it is back. */
  revoked(key: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<void>;
  /** Returns the keys with requests running here. */
  keysRunning(): readonly string[];
  /** Holds of stopped gateways. */
  readonly orphanedHolds: OrphanedHolds;
  /** Sends unconfirmed settlements once more, and stops. */
  close(): Promise<void>;
}

const staleMsDefault = 300_000;
const attemptsMax = 20;
const unavailable: AdmitResult = { ok: false, code: 'billing_unavailable' };
const noView: LimitsView = { requests: null, tokens: null, monthTokensLeft: null, concurrencyLeft: null };

export function createRedisAdmission(options: RedisAdmissionOptions): RedisAdmission {
  return new SharedAdmission(options);
}

class SharedAdmission implements RedisAdmission {
  readonly renewMs: number;
  readonly orphanedHolds: OrphanedHolds;
  readonly #options: RedisAdmissionOptions;
  readonly #store: AdmissionStore;
  readonly #books: RedisBooks;
  readonly #leases: HoldLeases;
  readonly #known = new LastKnown();
  readonly #asking: RedisAsking;
  readonly #moves: RedisMoves;
  readonly #outages: Outages;

  constructor(options: RedisAdmissionOptions) {
    const { store, prefix, clock, books, staleMs = staleMsDefault } = options;
    this.#options = options;
    this.renewMs = Math.max(200, Math.floor(options.leaseMs / 3));
    const watch = new LedgerHealth({ clock, staleMs });
    this.#store = new AdmissionStore(store, prefix, clock);
    this.#leases = new HoldLeases({ ...options, store: this.#store });
    this.orphanedHolds = new OrphanedHolds({ ...options, store: this.#store, settlements: this.#leases.settlements });
    const gathering = new Gathering({ ...options, register: (name) => this.#outages.sendUnregistered(name) });
    const shared = { ...options, store: this.#store, leases: this.#leases, known: this.#known, watch };
    this.#outages = new Outages({
      ...shared,
      books,
      gathering,
      again: (request, { isDry, isUnsure }) => (isUnsure ? unavailable : this.#decide(request, isDry)),
    });
    this.#books = new RedisBooks({ store: this.#store, books, gathering, watch });
    this.#moves = new RedisMoves({
      ...shared,
      books: this.#books,
      onBudgets: (hold, slots) => this.#outages.last?.rebound(hold, slots),
    });
    this.#asking = new RedisAsking({
      ...shared,
      books: this.#books,
      instead: (request, isDry, isUnsure) => this.#instead(request, isDry, isUnsure),
      onAdmitted: (request, heldMicroUsd) => this.#outages.current?.admittedByRedis(request, heldMicroUsd),
    });
  }

  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#decide(request, false);
  }

  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#decide(request, true);
  }

  async extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd = 0n): Promise<Extension> {
    const hold = this.#leases.find(requestId);
    if (hold === undefined || hold.isSpooled) return 0n;
    await this.#outages.current?.givenOver.untilHandedBack(hold.organizationId);
    const before = this.#outages.current;
    const more = { moreMicroUsd, leastMicroUsd };
    if (before !== null) return before.extend(requestId, hold, more);
    try {
      return await this.#extendInRedis(requestId, hold, more);
    } catch (error) {
      if (error instanceof RedisAwayError) return this.#outages.begin().extend(requestId, hold, more);
      this.#options.log.warn({ err: error, requestId }, 'Redis rejected an increase of the wallet hold of a request');
      return null;
    }
  }

  async move(requestId: string, move: ModelMove): Promise<boolean> {
    const hold = this.#leases.find(requestId);
    if (hold === undefined || hold.isSpooled) return false;
    const isCounted = hold.model !== null || this.#outages.current?.models.has(requestId) === true;
    if (!isCounted && this.#moves.isSame(requestId, hold, move)) {
      hold.modelId = move.model;
      return true;
    }
    await this.#outages.current?.givenOver.untilHandedBack(hold.organizationId);
    const outage = this.#outages.current;
    if (outage !== null) {
      const isMoved = await outage.move(requestId, hold, move);
      return isMoved || this.#outages.current === outage ? isMoved : this.move(requestId, move);
    }
    try {
      return await this.#moves.move(requestId, hold, move);
    } catch (error) {
      if (error instanceof RedisAwayError) return this.#outages.begin().move(requestId, hold, move);
      this.#options.log.warn(
        { err: error, requestId },
        'a request could not be counted against the limits of its fallback model: Redis rejected the command',
      );
      return false;
    }
  }

  spooled(requestId: string, used: Settlement): void {
    const before = this.#leases.spooled(requestId, used);
    if (before !== null) this.#outages.last?.spooled(requestId, before, used);
  }

  settle(requestId: string, used: Settlement): void {
    const hold = this.#leases.settle(requestId, used);
    if (hold === null) return;
    this.#known.charged(hold.organizationId, used.chargedPicoUsd);
    if (hold.slots.length > 0) this.#chargedToBudgets(hold, used);
    this.#outages.last?.settled(requestId, hold, used);
    this.#forgetNewBudgets(requestId, hold);
  }

  settleReplayed(organizationId: string, keyId: string, requestId: string, used: Settlement): void {
    if (this.#leases.find(requestId) !== undefined) this.settle(requestId, used);
    else this.#leases.settleReplayed({ organizationId, keyId, requestId }, used);
  }

  async forgetBooks(): Promise<void> {
    this.#known.forget();
    try {
      this.#store.notBeforeMs = Math.floor(await this.#store.nowMs());
    } catch (error) {
      // The end of the outage has balances read again.
      if (!(error instanceof RedisAwayError)) throw error;
    }
  }

  async view({ keyId, organizationId, limits }: KeyRef): Promise<LimitsView> {
    const { use } = this.#store.use(organizationId, keyId);
    this.#leases.settlements.flush();
    try {
      const reply = await this.#store.run(viewScript, [use], [text(limits.tokensPerMinute)]);
      const nowMs = this.#options.clock.now();
      return viewLimits(readUse(reply.rest, nowMs - reply.nowMs), limits, nowMs);
    } catch (error) {
      if (error instanceof RedisAwayError) return noView;
      throw error;
    }
  }

  heldMicroUsd(organizationId: string): Promise<bigint> {
    return this.#readHeld(organizationId, 'total');
  }

  heldOfSlot(organizationId: string, slot: string): Promise<bigint> {
    return this.#readHeld(organizationId, `h:${slot}`);
  }

  async #readHeld(organizationId: string, field: string): Promise<bigint> {
    // Redis may be back, and not yet have the admissions made in its place.
    if (this.#outages.current !== null) throw new AppError('billing_unavailable');
    this.#leases.settlements.flush();
    try {
      const { money } = this.#store.organization(organizationId);
      const held = await this.#store.redis.command('HGET', money, field);
      return typeof held === 'string' ? BigInt(held) : 0n;
    } catch (error) {
      throw error instanceof RedisAwayError ? new AppError('billing_unavailable', { cause: error }) : error;
    }
  }

  enter(): Promise<void> {
    return this.#outages.enter();
  }

  renew(): Promise<void> {
    return this.#outages.renew();
  }

  sweep(): Promise<void> {
    return this.#leases.sweep();
  }

  register(organizationId: string): Promise<void> {
    return this.#outages.register(organizationId);
  }

  credited(organizationId: string, picoUsd: bigint): Promise<void> {
    const { wallet, loading } = this.#store.organization(organizationId);
    this.#outages.last?.credited(organizationId, picoUsd);
    return this.#leases.settlements.sure(() => this.#store.redis.command('DEL', wallet, loading));
  }

  revoked({ organizationId, keyId }: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<void> {
    const { use } = this.#store.use(organizationId, keyId);
    this.#known.revoked(keyId);
    return this.#leases.settlements.sure(() => this.#store.redis.command('HSET', use, 'a', '0'));
  }

  keysRunning(): readonly string[] {
    return this.#leases.keysRunning();
  }

  async close(): Promise<void> {
    await this.#outages.close();
    await this.#leases.close();
  }

  #decide(request: AdmitRequest, isDry: boolean): AdmitResult | Promise<AdmitResult> {
    const { gate } = this.#outages;
    if (gate !== null) return gate.then(() => this.#decide(request, isDry));
    const outage = this.#outages.current;
    return outage === null ? this.#asking.ask(request, isDry) : outage.admit(request, { isDry, isUnsure: false });
  }

  /** Decides after Redis was asked and did not answer. */
  async #instead(request: AdmitRequest, isDry: boolean, isUnsure: boolean): Promise<AdmitResult> {
    const result = await this.#outages.begin().admit(request, { isDry, isUnsure });
    if (isUnsure && !isDry && !result.ok) this.#leases.settlements.undo(request);
    return result;
  }

  #chargedToBudgets({ organizationId, slots }: OwnHold, { chargedPicoUsd }: Settlement): void {
    for (const slot of slots) this.#known.budgetCharged(organizationId, slot, chargedPicoUsd);
  }

  /**
   * Forgets budgets that were created while the request ran: only the database has their charges, so they are read
   * again. The same for a request that another model served: a report to Redis may have crossed its move. The database has the charge by now, and reads that began earlier are marked as outdated.
   */
  #forgetNewBudgets(requestId: string, hold: OwnHold): void {
    const { spender, modelId, formerSlots } = hold;
    const made = budgetsOf(this.#options.budgets, { requestId, spender, model: modelId });
    const missed = made.map(({ slot }) => slot).filter((slot) => !hold.slots.includes(slot));
    if (formerSlots.length > 0) missed.push(...formerSlots, ...hold.slots);
    if (missed.length === 0) return;
    const { budgets, loading } = this.#store.organization(hold.organizationId);
    const { redis } = this.#store;
    const forget = async (): Promise<void> => {
      await redis.command('DEL', loading);
      await redis.command('HDEL', budgets, ...missed);
    };
    this.#leases.settlements
      .sure(forget)
      .catch((error: unknown) =>
        this.#options.log.warn(
          { err: error },
          'a new budget may not count a request that was running at its creation: its spending in Redis could not be reset',
        ),
      );
  }

  /** Returns the request's budgets that still exist, with their current amounts. */
  #budgetsLeft(requestId: string, hold: OwnHold): readonly HardBudget[] {
    const budgets = budgetsOf(this.#options.budgets, { requestId, spender: hold.spender, model: hold.modelId });
    return budgets.filter(({ slot }) => hold.slots.includes(slot));
  }

  /** @throws RedisAwayError, and errors of the database if Redis needs values from it first */
  async #extendInRedis(requestId: string, hold: OwnHold, { moreMicroUsd, leastMicroUsd }: Wanted): Promise<Extension> {
    const { wallet, holds, money, budgets: spent } = this.#store.organization(hold.organizationId);
    const isBound = hold.slots.length > 0;
    const [runs, keys] = isBound ? [extendBoundScript, [wallet, holds, money, spent]] : [extendScript, [wallet, money]];
    this.#leases.settlements.flush();
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const budgets = isBound ? this.#budgetsLeft(requestId, hold) : noBudgets;
      const limits = budgets.flatMap(({ slot, amountMicroUsd }) => [slot, amountMicroUsd.toString()]);
      const args = [requestId, moreMicroUsd.toString(), leastMicroUsd.toString(), ...limits];
      const reply = await this.#store.run(runs, keys, args, 'short');
      if (hold.isSettled) return 0n;
      if (reply.word === 'wallet') await this.#books.loadWallet(hold.organizationId);
      else if (reply.word === 'budget') await this.#books.loadBudgets(hold.organizationId, budgets);
      else if (reply.word === 'gone') await this.#leases.register(hold.organizationId);
      else {
        const [micro = '0', exhausted] = reply.rest;
        const added = BigInt(micro);
        this.#leases.raise(hold, added, true);
        this.#outages.last?.raised(hold, added);
        return added > 0n ? added : (budgets.find(({ slot }) => slot === exhausted) ?? 0n);
      }
    }
    throw new Error('Redis lost the values for an extension faster than they could be read');
  }
}

const text = (limit: number | null): string => (limit === null ? '-' : String(limit));
