import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { RedisAwayError, type RedisStore } from '#base/redis.ts';
import { monthStartMs, refuseByLimits, viewLimits, type KeyUse, type LimitsView } from '#core/limits/limits.ts';
import { AdmissionStore, type Reply } from './admission-store.ts';
import { AdmitBatcher, type Asked } from './admit-batcher.ts';
import type { Admission, AdmitRequest, AdmitResult, KeyRef, Settlement } from './contract.ts';
import { Gathering, GatewaysSilentError } from './gathering.ts';
import { HoldLeases } from './hold-leases.ts';
import { RedisBooks, type Books } from './redis-books.ts';
import { extendScript, viewScript } from './redis-admit-scripts.ts';

export interface RedisAdmissionOptions {
  readonly store: RedisStore;
  /** What all names in Redis begin with: one for each database. */
  readonly prefix: string;
  readonly gatewayId: string;
  readonly leaseMs: number;
  readonly books: Books;
  /**
   * Has the other gateways call `register` for an organization; waits for them, but not for ever.
   * @returns ids of those that live and did not answer
   */
  readonly collect: (organizationId: string) => Promise<readonly string[]>;
  /** Which of these requests are in the books, and with what. */
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  /** Gateways that are alive, by the database's word. */
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Admission of several gateways, in Redis. While Redis is away every request is `billing_unavailable`. */
export interface RedisAdmission extends Admission {
  /** Renews the leases of what runs here, and settles what could not be settled before; to be called every `renewMs`. */
  renew(): Promise<void>;
  readonly renewMs: number;
  /** Settles or releases holds of gateways that are gone, by what the books say. */
  sweep(): Promise<void>;
  /** Puts what runs here for an organization into a memory that may have lost it. */
  register(organizationId: string): Promise<void>;
  /** The balance was changed by something else than a request: it is read anew. */
  credited(organizationId: string): Promise<void>;
  /** Nothing more is admitted for a key, by any gateway; also when Redis is away now. */
  revoked(key: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<void>;
  /** Keys that have something running here. */
  keysRunning(): readonly string[];
  /** Settles what could not be settled before. */
  close(): Promise<void>;
}

/** An admission on its way. */
interface Asking extends Asked {
  readonly attempt: number;
  readonly resolve: (result: AdmitResult) => void;
}

const attemptsMax = 20;
/** Words of a reply that say what Redis must be told first. */
const knowsNot: ReadonlySet<string> = new Set(['wallet', 'month', 'key', 'clock']);
const noView: LimitsView = { requests: null, tokens: null };
const unavailable: AdmitResult = { ok: false, code: 'billing_unavailable' };

export function createRedisAdmission(options: RedisAdmissionOptions): RedisAdmission {
  return new SharedAdmission(options);
}

class SharedAdmission implements RedisAdmission {
  readonly renewMs: number;
  readonly #options: RedisAdmissionOptions;
  readonly #store: AdmissionStore;
  readonly #books: RedisBooks;
  readonly #leases: HoldLeases;
  readonly #batcher: AdmitBatcher<Asking>;

  constructor(options: RedisAdmissionOptions) {
    const { store, prefix, clock, books } = options;
    this.#options = options;
    this.renewMs = Math.max(200, Math.floor(options.leaseMs / 3));
    this.#store = new AdmissionStore(store, prefix, clock);
    this.#leases = new HoldLeases({ ...options, store: this.#store });
    this.#batcher = new AdmitBatcher<Asking>({
      ...options,
      store: this.#store,
      beforeAsking: () => this.#leases.settlements.flush(),
      onReply: (asking, reply) => this.#onReply(asking, reply),
      onFailure: (asking, error) => asking.resolve(this.#unavailable(asking, error)),
    });
    const register = (organizationId: string): Promise<void> => this.#leases.register(organizationId);
    const gathering = new Gathering({ ...options, register });
    this.#books = new RedisBooks({ store: this.#store, books, gathering });
  }

  admit(request: AdmitRequest): Promise<AdmitResult> {
    return this.#admit(request, false);
  }

  check(request: AdmitRequest): Promise<AdmitResult> {
    return this.#admit(request, true);
  }

  async extend(requestId: string, moreMicroUsd: bigint): Promise<bigint> {
    const hold = this.#leases.find(requestId);
    if (hold === undefined) return 0n;
    const { wallet, money } = this.#store.organization(hold.organizationId);
    this.#leases.settlements.flush();
    try {
      for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
        const reply = await this.#store.run(extendScript, [wallet, money], [requestId, moreMicroUsd.toString()]);
        if (reply.word === 'wallet') await this.#books.loadWallet(hold.organizationId);
        else if (reply.word === 'gone') await this.#leases.register(hold.organizationId);
        else {
          const added = BigInt(reply.rest[0] ?? '0');
          hold.heldMicroUsd += added;
          return added;
        }
      }
    } catch (error) {
      this.#options.log.warn({ err: error, requestId }, 'a hold could not be extended');
    }
    return 0n;
  }

  spooled(requestId: string, used: Settlement): void {
    this.#leases.spooled(requestId, used);
  }

  settle(requestId: string, used: Settlement): void {
    this.#leases.settle(requestId, used);
  }

  settleReplayed(organizationId: string, keyId: string, requestId: string, used: Settlement): void {
    this.#leases.settleReplayed({ organizationId, keyId, requestId }, used);
  }

  async view({ keyId, organizationId, limits }: KeyRef): Promise<LimitsView> {
    const { use } = this.#store.use(organizationId, keyId);
    this.#leases.settlements.flush();
    try {
      const reply = await this.#store.run(viewScript, [use], [text(limits.tokensPerMinute)]);
      const { use: used, nowMs } = this.#useOf(reply);
      return viewLimits(used, limits, nowMs);
    } catch (error) {
      if (error instanceof RedisAwayError) return noView;
      throw error;
    }
  }

  async heldMicroUsd(organizationId: string): Promise<bigint> {
    this.#leases.settlements.flush();
    try {
      const { money } = this.#store.organization(organizationId);
      const held = await this.#store.redis.command('HGET', money, 'total');
      return typeof held === 'string' ? BigInt(held) : 0n;
    } catch (error) {
      throw error instanceof RedisAwayError ? new AppError('billing_unavailable', { cause: error }) : error;
    }
  }

  renew(): Promise<void> {
    return this.#leases.renew();
  }

  sweep(): Promise<void> {
    return this.#leases.sweep();
  }

  register(organizationId: string): Promise<void> {
    return this.#leases.register(organizationId);
  }

  credited(organizationId: string): Promise<void> {
    const { wallet, loading } = this.#store.organization(organizationId);
    return this.#leases.settlements.sure(() => this.#store.redis.command('DEL', wallet, loading));
  }

  revoked({ organizationId, keyId }: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<void> {
    const { use } = this.#store.use(organizationId, keyId);
    return this.#leases.settlements.sure(() => this.#store.redis.command('HSET', use, 'a', '0'));
  }

  keysRunning(): readonly string[] {
    return this.#leases.keysRunning();
  }

  close(): Promise<void> {
    return this.#leases.close();
  }

  #admit(request: AdmitRequest, isDry: boolean): Promise<AdmitResult> {
    const monthMs = monthStartMs(this.#options.clock.now());
    return new Promise((resolve) => this.#batcher.ask({ request, isDry, monthMs, attempt: 1, resolve }));
  }

  #onReply(asking: Asking, reply: Reply): void {
    try {
      if (knowsNot.has(reply.word)) void this.#learn(asking, reply);
      else asking.resolve(this.#resultOf(asking.request, reply, asking.isDry));
    } catch (error) {
      asking.resolve(this.#unavailable(asking, error));
    }
  }

  #unavailable({ request, isDry }: Asking, error: unknown): AdmitResult {
    if (!isDry && error instanceof RedisAwayError && error.uncertain) this.#leases.settlements.undo(request);
    const isExpected = error instanceof RedisAwayError || error instanceof GatewaysSilentError;
    if (!isExpected) this.#options.log.warn({ err: error }, 'admission failed');
    return unavailable;
  }

  /** Reads what Redis says it does not know, and asks again. */
  async #learn(asking: Asking, { word, nowMs }: Reply): Promise<void> {
    const { request, monthMs, attempt } = asking;
    try {
      if (attempt === attemptsMax) throw new Error('what admission must know was lost faster than it could be read');
      if (word === 'wallet') await this.#books.loadWallet(request.organizationId);
      else if (word === 'month') await this.#books.loadMonth(request, monthMs);
      else if (word === 'key') await this.#books.loadKey(request);
      this.#batcher.ask({ ...asking, attempt: attempt + 1, monthMs: word === 'clock' ? monthStartMs(nowMs) : monthMs });
    } catch (error) {
      asking.resolve(this.#unavailable(asking, error));
    }
  }

  #resultOf(request: AdmitRequest, reply: Reply, isDry: boolean): AdmitResult {
    if (reply.word === 'revoked') return { ok: false, code: 'unauthorized' };
    if (reply.word === 'insufficient_funds') {
      const [micro = '0', pico = '0', held = '0'] = reply.rest;
      const balancePicoUsd = BigInt(micro) * PICO_PER_MICRO + BigInt(pico);
      return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd: BigInt(held) };
    }
    const { use, nowMs } = this.#useOf(reply);
    const { limits } = request;
    const view = viewLimits(use, limits, nowMs);
    if (reply.word === 'ok') {
      const heldMicroUsd = BigInt(reply.rest[5] ?? '0');
      if (!isDry) this.#leases.add(request, { heldMicroUsd, reservedTokens: reply.rest[6] ?? '0', reply });
      return { ok: true, heldMicroUsd, view };
    }
    // The script decides, the rules say how long to wait: they are the same rules.
    const refused = refuseByLimits(use, limits, request.estimatedTokens, nowMs);
    if (refused?.code !== reply.word) throw new Error(`the rules of limits do not know why ${reply.word} refused`);
    return { ok: false, ...refused, limits: view };
  }

  /** What a key has used, in the time of this machine's clock: Redis' may be another. */
  #useOf({ rest, nowMs }: Reply): { readonly use: KeyUse; readonly nowMs: number } {
    const [startMs = 0, requests = 0, tokens = 0, monthTokens = 0, running = 0] = rest.map(Number);
    const hereMs = this.#options.clock.now();
    const windowStartMs = startMs === 0 ? 0 : startMs + hereMs - nowMs;
    return { use: { windowStartMs, requests, tokens, monthTokens, running }, nowMs: hereMs };
  }
}

const text = (limit: number | null): string => (limit === null ? '-' : String(limit));
