import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { shortTimeoutMs } from '#base/redis.ts';
import type { AdmissionStore } from './admission-store.ts';
import type { AdmitRequest, AdmitResult, HardBudgets, ProjectLimits } from './contract.ts';
import type { BooksWatch } from './books-watch.ts';
import type { Gathering } from './gathering.ts';
import { turnMs } from './given-over.ts';
import type { HoldLeases } from './hold-leases.ts';
import type { LastKnown } from './last-known.ts';
import { type Deciding, Outage } from './outage.ts';
import { OutageBooks } from './outage-books.ts';
import type { Books } from './redis-books.ts';

export interface OutagesOptions {
  readonly store: AdmissionStore;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  readonly books: Books;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  readonly watch: BooksWatch;
  readonly gathering: Gathering;
  readonly gatewayId: string;
  readonly leaseMs: number;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  /** Has the other gateways call `register` with this name. */
  readonly collect: (name: string) => Promise<unknown>;
  /** Decides a request that met the end of an outage. */
  readonly again: (request: AdmitRequest, deciding: Deciding) => AdmitResult | Promise<AdmitResult>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What `register` is called with when Redis is to be told of all organizations. */
const everything = '*';
/** The same by a gateway that lets Redis decide again when all have done it: until then nothing more is decided here. */
const everythingFinally = '*!';
/** The same by a gateway that has begun: from now on what there is must be divided by one more. */
const oneMore = '+';
/** What was asked of Redis before it fell silent is surely too late by then: its own deadline is half of this. */
const sureAfterMs = 2 * shortTimeoutMs;
const lookAgainMs = 25;
/** What is settled while Redis is told of it must be told anew. */
const roundsMax = 10;
/** Leases that were not renewed for this part of their time are renewed before anything is admitted. */
const renewedWithin = 0.8;
/**
 * Keeps the parts of an outage for an outage that begins within this time. Later the books have all charges, and credits
 * that no part includes yet.
 */
const partsGoOnMs = 300_000;

/**
 * When this gateway decides in Redis' place, and how that ends: Redis is told of all that was decided meanwhile, by every
 * gateway, before any of them has it decide again.
 */
export class Outages {
  readonly #options: OutagesOptions;
  #current: Outage | null = null;
  #last: Outage | null = null;
  /** When it was over, on the monotonic clock. */
  #overMs = 0;
  #gate: { readonly opened: Promise<void>; readonly open: () => void } | null = null;
  #gatewaysKnown: number | null = null;
  /** Last moments, on the monotonic clock, at which Redis was asked something whose answer is unknown, and leases renewed. */
  #unsureMs = 0;
  #renewedMs: number;
  #renewing: Promise<void> | null = null;
  #isClosed = false;

  constructor(options: OutagesOptions) {
    this.#options = options;
    this.#renewedMs = options.clock.monotonicMs();
    options.store.redis.onSilence(() => this.begin());
  }

  /** The outage that is, null while Redis decides. */
  get current(): Outage | null {
    return this.#current;
  }

  /** Returns the current outage or the last one. Settled requests update its parts, which the next outage may keep. */
  get last(): Outage | null {
    return this.#last;
  }

  /** What must be waited for before anything is decided; null when nothing must. */
  get gate(): Promise<void> | null {
    if (this.#gate !== null) return this.#gate.opened;
    const { clock, leaseMs } = this.#options;
    if (this.#current !== null || clock.monotonicMs() - this.#renewedMs < renewedWithin * leaseMs) return null;
    // This process has slept, or Redis was silent while nobody asked: slots may have lapsed that are taken here.
    return this.#renewOnce().catch(() => void this.begin());
  }

  /** Redis is silent: from now on this gateway decides alone. */
  begin(): Outage {
    const { clock, log } = this.#options;
    this.#unsureMs = clock.monotonicMs();
    this.#current?.givenOver.silent();
    if (this.#current !== null) return this.#current;
    if (this.#isClosed) return this.#make();
    log.warn({}, 'Redis is silent: limits and wallets are divided by the gateways');
    const outage = this.#make();
    this.#current = outage;
    this.#last = outage;
    void this.#end(outage);
    return outage;
  }

  async renew(): Promise<void> {
    // How many gateways live must be known when Redis falls silent.
    const counting = this.#countGateways().catch(() => undefined);
    await this.#renewOnce();
    await counting;
  }

  /** This gateway is on the list of those that live: it knows how many they are, and so do the others. */
  async enter(): Promise<void> {
    await Promise.all([this.#countGateways(), this.#options.collect(oneMore)]);
  }

  /** For other gateways. */
  async register(name: string): Promise<void> {
    if (name === oneMore) return void (await this.#countGateways());
    if (name === everythingFinally && this.#current !== null) {
      const { open } = this.#closeGate();
      setTimeout(open, turnMs).unref();
    }
    // What is decided from now on would not be told.
    if (name !== everything) this.#current?.givenOver.add(name === everythingFinally ? null : name);
    await this.tell(name);
  }

  /** Tells Redis of an organization, or of everything that it was not told of. */
  async tell(name: string): Promise<void> {
    if (name !== everything && name !== everythingFinally) await this.#tellOf(name);
    else if (this.#current !== null) await this.#tellAll();
  }

  /** Redis is told what it can be told. */
  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#current === null || !this.#options.store.redis.answers) return;
    try {
      await this.#tellAll();
    } catch (error) {
      this.#options.log.warn({ err: error }, 'Redis was not told of what was admitted in its place');
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
    const books = new OutageBooks(options, before?.books ?? null);
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

  /** Looks again and again whether Redis is back, until it is. */
  async #end(outage: Outage): Promise<void> {
    const { store, clock, log } = this.#options;
    while (this.#current === outage && !this.#isClosed) {
      await new Promise((resolve) => setTimeout(resolve, lookAgainMs).unref());
      if (!store.redis.answers || clock.monotonicMs() - this.#unsureMs < sureAfterMs) continue;
      try {
        await this.#goBack(outage);
      } catch (error) {
        log.debug({ err: error }, 'Redis cannot decide yet');
      }
    }
    this.#gate?.open();
  }

  async #goBack(outage: Outage): Promise<void> {
    const { gathering, watch, store, leases, clock } = this.#options;
    if (watch.isWorthATry) await this.#countGateways().catch(() => undefined);
    // Balances that Redis must forget could not be read again.
    if (outage.isCharged && watch.isAway) return;
    await leases.settlements.retry();
    await gathering.gather(everything);
    const { open } = this.#closeGate();
    try {
      const startedMs = clock.monotonicMs();
      await gathering.gather(everythingFinally);
      for (let round = 1; !this.#isAllTold(outage); round += 1) {
        if (round === roundsMax) return;
        await this.#tellAll();
      }
      const nowMs = await store.nowMs();
      if (store.redis.answers && this.#isAllTold(outage)) this.#isOver(outage, startedMs, nowMs);
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
    this.#options.log.warn({}, 'Redis decides again');
  }

  #isAllTold(outage: Outage): boolean {
    return outage.untoldOrganizations().size === 0 && this.#options.leases.isAllTold;
  }

  /** Nothing is decided until it is opened. */
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

  async #tellAll(): Promise<void> {
    const { leases } = this.#options;
    const organizations = new Set([...leases.organizations(), ...(this.#current?.untoldOrganizations() ?? [])]);
    await Promise.all([...organizations].map((organizationId) => this.#tellOf(organizationId)));
  }

  async #tellOf(organizationId: string): Promise<void> {
    const outage = this.#current;
    const untold = outage?.untold(organizationId) ?? [];
    const ofModels = outage?.models.untold(organizationId) ?? [];
    await this.#options.leases.register(organizationId, untold, ofModels);
    outage?.told(untold);
    outage?.models.told(ofModels);
  }
}
