import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { shortTimeoutMs } from '#base/redis/redis.ts';
import type {
  AdmitRequest,
  AdmitResult,
  LedgerHealth,
  Gathering,
  HardBudgets,
  ProjectLimits,
} from '#core/admission/contract/contract.ts';
import type { AdmissionStore, Books, HoldLeases, LastKnown } from '#core/admission/redis/redis.ts';
import { handoverWaitMs } from './handover.ts';
import { type Deciding, Outage } from './outage-admission.ts';
import { OutageAccounts } from './accounts.ts';

export interface OutagesOptions {
  readonly store: AdmissionStore;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  readonly books: Books;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  readonly watch: LedgerHealth;
  readonly gathering: Gathering;
  readonly gatewayId: string;
  readonly leaseMs: number;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  /** Has the other gateways call `register` with this name. */
  readonly collect: (name: string) => Promise<unknown>;
  /** Decides a request that was waiting when an outage ended. */
  readonly again: (request: AdmitRequest, deciding: Deciding) => AdmitResult | Promise<AdmitResult>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Name for `register`: Redis shall get the data of all organizations. */
const registerAll = '*';
/**
 * The same, from a gateway that lets Redis decide again when all have done it. Until then nothing more is decided here.
 */
const registerAllAndResume = '*!';
/** Name for `register` from a gateway that has started: from now on one more gateway divides what there is. */
const gatewayJoined = '+';
/** Milliseconds after which calls sent before the outage are surely too late: their own deadline is half of this. */
const sureAfterMs = 2 * shortTimeoutMs;
const retryMs = 25;
/** Maximum number of rounds. A settlement during a registration must be sent to Redis in the next round. */
const roundsMax = 10;
/** Part of the lease time. Leases that were not renewed within it are renewed before anything is admitted. */
const renewedWithin = 0.8;
/**
 * Milliseconds after an outage in which a new outage continues its parts. After that, the database has all charges, and
 * credits that no part includes yet.
 */
const partsGoOnMs = 300_000;

/**
 * Starts and ends the time in which this gateway decides instead of Redis. Before any gateway lets Redis decide again,
 * every gateway sends Redis all decisions that it made meanwhile.
 */
export class Outages {
  readonly #options: OutagesOptions;
  #current: Outage | null = null;
  #last: Outage | null = null;
  /** Time when the last outage ended, on the monotonic clock. */
  #overMs = 0;
  #gate: { readonly opened: Promise<void>; readonly open: () => void } | null = null;
  #gatewaysKnown: number | null = null;
  /** Last times, on the monotonic clock, of a call to Redis with unknown result, and of a renewal of leases. */
  #unsureMs = 0;
  #renewedMs: number;
  #renewing: Promise<void> | null = null;
  #isClosed = false;

  constructor(options: OutagesOptions) {
    this.#options = options;
    this.#renewedMs = options.clock.monotonicMs();
    options.store.redis.onSilence(() => this.begin());
  }

  /** Returns the current outage; null while Redis decides. */
  get current(): Outage | null {
    return this.#current;
  }

  /** Returns the current outage or the last one. Settled requests update its parts, which the next outage may keep. */
  get last(): Outage | null {
    return this.#last;
  }

  /** Returns what must be awaited before the next decision; null if nothing must. */
  get gate(): Promise<void> | null {
    if (this.#gate !== null) return this.#gate.opened;
    const { clock, leaseMs } = this.#options;
    if (this.#current !== null || clock.monotonicMs() - this.#renewedMs < renewedWithin * leaseMs) return null;
    // The process was suspended, or Redis was silent while no request came: slots that are in use here may have
    // expired.
    return this.#renewOnce().catch(() => void this.begin());
  }

  /** Starts an outage: from now on this gateway decides on its own. */
  begin(): Outage {
    const { clock, log } = this.#options;
    this.#unsureMs = clock.monotonicMs();
    this.#current?.givenOver.silent();
    if (this.#current !== null) return this.#current;
    if (this.#isClosed) return this.#make();
    log.warn({}, 'Redis outage: requests continue, and each gateway enforces its share of limits, budgets and wallets');
    const outage = this.#make();
    this.#current = outage;
    this.#last = outage;
    void this.#end(outage);
    return outage;
  }

  async renew(): Promise<void> {
    // The number of live gateways must be known when Redis falls silent.
    const counting = this.#countGateways().catch(() => undefined);
    await this.#renewOnce();
    await counting;
  }

  /** Counts the live gateways after this one is listed as live, and has the others count them again. */
  async enter(): Promise<void> {
    await Promise.all([this.#countGateways(), this.#options.collect(gatewayJoined)]);
  }

  /** Answers a call of another gateway. */
  async register(name: string): Promise<void> {
    if (name === gatewayJoined) return void (await this.#countGateways());
    if (name === registerAllAndResume && this.#current !== null) {
      const { open } = this.#closeGate();
      setTimeout(open, handoverWaitMs).unref();
    }
    // Decisions made from now on would not be sent.
    if (name !== registerAll) this.#current?.givenOver.add(name === registerAllAndResume ? null : name);
    await this.sendUnregistered(name);
  }

  /** Sends Redis the data of an organization, or everything that it does not have. */
  async sendUnregistered(name: string): Promise<void> {
    if (name !== registerAll && name !== registerAllAndResume) await this.#registerOrganization(name);
    else if (this.#current !== null) await this.#registerAll();
  }

  /** Sends Redis what it does not have, if Redis answers. */
  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#current === null || !this.#options.store.redis.answers) return;
    try {
      await this.#registerAll();
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'the gateway stopped before it could report the requests of the Redis outage to Redis; their charges are in PostgreSQL',
      );
    }
  }

  #make(): Outage {
    const options = {
      ...this.#options,
      countGateways: () => this.#countGateways(),
      gatewaysKnown: () => this.#gatewaysKnown,
    };
    const goesOn = this.#options.clock.monotonicMs() - this.#overMs <= partsGoOnMs;
    const before = goesOn ? this.#last : null;
    const books = new OutageAccounts(options, before?.books ?? null);
    return new Outage({ ...this.#options, books }, before);
  }

  async #countGateways(): Promise<number> {
    const { liveGateways, gatewayId } = this.#options;
    const live = await this.#options.watch.ask(liveGateways);
    this.#gatewaysKnown = new Set([...live, gatewayId]).size;
    return this.#gatewaysKnown;
  }

  #renewOnce(): Promise<void> {
    this.#renewing ??= this.#renewAll().finally(() => (this.#renewing = null));
    return this.#renewing;
  }

  async #renewAll(): Promise<void> {
    const { clock, leases } = this.#options;
    const startedMs = clock.monotonicMs();
    await leases.renew();
    this.#renewedMs = startedMs;
  }

  /** Polls until Redis is back, then ends the outage. */
  async #end(outage: Outage): Promise<void> {
    const { store, clock, log } = this.#options;
    while (this.#current === outage && !this.#isClosed) {
      await new Promise((resolve) => setTimeout(resolve, retryMs).unref());
      if (!store.redis.answers || clock.monotonicMs() - this.#unsureMs < sureAfterMs) continue;
      try {
        await this.#goBack(outage);
      } catch (error) {
        log.debug({ err: error }, 'admission cannot return to Redis yet');
      }
    }
    this.#gate?.open();
  }

  async #goBack(outage: Outage): Promise<void> {
    const { gathering, watch, store, leases, clock } = this.#options;
    if (watch.isWorthATry) await this.#countGateways().catch(() => undefined);
    // Redis must forget balances, and they could not be read again now.
    if (outage.isCharged && watch.isUnavailable) return;
    await leases.settlements.retry();
    await gathering.gather(registerAll);
    const { open } = this.#closeGate();
    try {
      const startedMs = clock.monotonicMs();
      await gathering.gather(registerAllAndResume);
      for (let round = 1; !this.#isAllRegistered(outage); round += 1) {
        if (round === roundsMax) return;
        await this.#registerAll();
      }
      const nowMs = await store.nowMs();
      if (store.redis.answers && this.#isAllRegistered(outage)) this.#isOver(outage, startedMs, nowMs);
    } finally {
      open();
    }
  }

  #isOver(outage: Outage, renewedMs: number, redisNowMs: number): void {
    this.#options.store.notBeforeMs = Math.floor(redisNowMs);
    this.#renewedMs = renewedMs;
    this.#current = null;
    this.#overMs = this.#options.clock.monotonicMs();
    this.#options.known.outageOver();
    outage.end();
    this.#options.log.warn(
      {},
      'Redis outage ended: all gateways share limits, budgets and wallets through Redis again',
    );
  }

  #isAllRegistered(outage: Outage): boolean {
    return outage.unregisteredOrganizations().size === 0 && this.#options.leases.isAllRegistered;
  }

  /** Stops all decisions until the returned gate is opened. */
  #closeGate(): { readonly open: () => void } {
    if (this.#gate !== null) return this.#gate;
    const { promise: opened, resolve } = Promise.withResolvers<void>();
    const gate = {
      opened,
      open: () => {
        if (this.#gate === gate) this.#gate = null;
        resolve();
      },
    };
    this.#gate = gate;
    return gate;
  }

  async #registerAll(): Promise<void> {
    const { leases } = this.#options;
    const organizations = new Set([...leases.organizations(), ...(this.#current?.unregisteredOrganizations() ?? [])]);
    await Promise.all([...organizations].map((organizationId) => this.#registerOrganization(organizationId)));
  }

  async #registerOrganization(organizationId: string): Promise<void> {
    const outage = this.#current;
    const unregistered = outage?.unregistered(organizationId) ?? [];
    const ofModels = outage?.models.unregistered(organizationId) ?? [];
    await this.#options.leases.register(organizationId, unregistered, ofModels);
    outage?.markRegistered(unregistered);
    outage?.models.markRegistered(ofModels);
  }
}
