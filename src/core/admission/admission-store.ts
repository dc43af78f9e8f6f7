import type { Clock } from '#base/clock.ts';
import {
  answerTimeoutMs,
  type Patience,
  RedisAwayError,
  type RedisScript,
  type RedisStore,
  shortTimeoutMs,
} from '#base/redis.ts';

/** The names of what Redis keeps of one organization, and of one key; see redis-scripts.ts for what is in them. */
export interface OrganizationKeys {
  readonly wallet: string;
  readonly holds: string;
  readonly money: string;
  readonly leases: string;
  readonly loading: string;
  readonly known: string;
  readonly budgets: string;
  readonly models: string;
  readonly days: string;
}

export interface UseKeys {
  readonly use: string;
  readonly slots: string;
  readonly monthLoading: string;
  /** Followed by the id of a gateway. */
  readonly told: string;
}

/** Names of keys in Redis for the requests of one API key, in the order in which its scripts have them. */
export interface RequestKeys {
  readonly admit: readonly string[];
  /** Where some of them have budgets or limits of their project. */
  readonly admitBound: readonly string[];
  readonly settle: readonly string[];
}

/** A script's reply: its first word, Redis' time, and the rest as text. */
export interface Reply {
  readonly word: string;
  readonly nowMs: number;
  readonly rest: readonly string[];
}

/** A sample of Redis' clock is kept for so long unless a quicker one comes; then the next one replaces it. */
const sampleGoodForMs = 10_000;
const lateAttemptsMax = 3;
const timeoutMs: Readonly<Record<Patience, number>> = { short: shortTimeoutMs, long: answerTimeoutMs };
/** Names of keys are kept for so many API keys, about 10 MB, then made anew. */
const requestKeysMax = 5000;

/** Runs scripts with the deadline that every one of them carries, in Redis' own time. */
export class AdmissionStore {
  readonly redis: RedisStore;
  readonly #prefix: string;
  readonly #clock: Clock;
  readonly #requestKeys = new Map<string, RequestKeys>();
  /**
   * What was read of the books before this moment of Redis' clock, in whole milliseconds, is read again: somebody may
   * have charged something that Redis was not told of.
   */
  notBeforeMs = 0;
  /** Redis' clock less the monotonic one here, at most by the way of one call too much. */
  #offsetMs: number | null = null;
  #sampleMs = 0;
  #sampledAtMs = 0;

  /** @param prefix what all names in Redis begin with */
  constructor(store: RedisStore, prefix: string, clock: Clock) {
    this.redis = store;
    this.#prefix = prefix;
    this.#clock = clock;
  }

  /** A sorted set of organizations by when their balance was read last. It has no hash tag. */
  get index(): string {
    return `${this.#prefix}:organizations`;
  }

  organization(organizationId: string): OrganizationKeys {
    const base = `${this.#prefix}:{${organizationId}}`;
    return {
      wallet: `${base}:wallet`,
      holds: `${base}:holds`,
      money: `${base}:money`,
      leases: `${base}:leases`,
      loading: `${base}:loading`,
      known: `${base}:known`,
      budgets: `${base}:budgets`,
      models: `${base}:models`,
      days: `${base}:days`,
    };
  }

  use(organizationId: string, keyId: string): UseKeys {
    const base = `${this.#prefix}:{${organizationId}}:${keyId}`;
    return { use: `${base}:use`, slots: `${base}:slots`, monthLoading: `${base}:loading`, told: `${base}:told:` };
  }

  /** The same arrays for an API key every time, while they are remembered. */
  requests(organizationId: string, keyId: string): RequestKeys {
    const known = this.#requestKeys.get(keyId);
    if (known !== undefined) return known;
    const { wallet, holds, money, leases, loading, budgets, models, days } = this.organization(organizationId);
    const { use, slots, monthLoading } = this.use(organizationId, keyId);
    const admit = [wallet, holds, money, leases, use, slots];
    const admitBound = [...admit, budgets, models, days];
    const made = { admit, admitBound, settle: [...admit, loading, monthLoading, budgets, models, days] };
    if (this.#requestKeys.size >= requestKeysMax) this.#requestKeys.clear();
    this.#requestKeys.set(keyId, made);
    return made;
  }

  /**
   * Runs a script; one that Redis found to be late did nothing, so it is sent again while its caller still waits.
   * @param args none of them empty, none with a line break
   * @throws RedisAwayError
   */
  run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    patience: Patience = 'long',
  ): Promise<Reply> {
    return this.runLines(script, keys, args.join('\n'), patience);
  }

  /** The same with the arguments as lines already. */
  async runLines(
    script: RedisScript,
    keys: readonly string[],
    lines: string,
    patience: Patience = 'long',
  ): Promise<Reply> {
    for (let attempt = 1; ; attempt += 1) {
      const offsetMs = this.#offsetMs ?? (await this.#readClock());
      const sentMs = this.#clock.monotonicMs();
      const deadlineMs = Math.ceil(sentMs + offsetMs + timeoutMs[patience]);
      const reply = await this.redis.run(script, keys, [`${deadlineMs}\n${lines}`], patience);
      const [word = '', now, ...rest] = String(reply).split('\n');
      const nowMs = Number(now);
      const isLate = word === 'late';
      this.#sample(sentMs, nowMs, isLate);
      if (!isLate) return { word, nowMs, rest };
      if (attempt === lateAttemptsMax) throw new RedisAwayError('Redis is late', false);
    }
  }

  /** What Redis' clock says now, as far as it is known. */
  async nowMs(): Promise<number> {
    return this.#clock.monotonicMs() + (this.#offsetMs ?? (await this.#readClock()));
  }

  /** The same without a question: this machine's clock where Redis has never said. */
  get guessedNowMs(): number {
    return this.#offsetMs === null ? this.#clock.now() : this.#clock.monotonicMs() + this.#offsetMs;
  }

  async #readClock(): Promise<number> {
    const sentMs = this.#clock.monotonicMs();
    const [seconds, micros] = (await this.redis.command('TIME')) as [string, string];
    const nowMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    this.#sample(sentMs, nowMs, false);
    return nowMs - sentMs;
  }

  /** @param isSure whether what is known cannot be right */
  #sample(sentMs: number, redisNowMs: number, isSure: boolean): void {
    const atMs = this.#clock.monotonicMs();
    const tookMs = atMs - sentMs;
    const isOld = isSure || atMs - this.#sampledAtMs > sampleGoodForMs;
    if (this.#offsetMs !== null && !isOld && tookMs > this.#sampleMs) return;
    this.#offsetMs = redisNowMs - sentMs;
    this.#sampleMs = tookMs;
    this.#sampledAtMs = atMs;
  }
}
