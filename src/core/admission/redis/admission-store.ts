import type { Clock } from '#base/clock.ts';
import {
  answerTimeoutMs,
  type Patience,
  RedisAwayError,
  type RedisScript,
  type RedisStore,
  shortTimeoutMs,
} from '#base/redis/redis.ts';

/** Names of the Redis keys of one organization. See redis-scripts.ts for their contents. */
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
  readonly registeredKey: string;
}

/** Names of the Redis keys for requests of one API key, in the order in which the scripts take them. */
export interface RequestKeys {
  readonly admit: readonly string[];
  /** Used if some of the requests have budgets or project limits. */
  readonly admitBound: readonly string[];
  readonly settle: readonly string[];
}

/** Reply of a script: its first word, Redis' time, and the rest as text. */
export interface Reply {
  readonly word: string;
  readonly nowMs: number;
  readonly rest: readonly string[];
}

/**
 * Time for which a sample of Redis' clock is kept, unless a quicker sample comes. After that, the next sample replaces
 * it.
 */
const sampleGoodForMs = 10_000;
const lateAttemptsMax = 3;
const timeoutMs: Readonly<Record<Patience, number>> = { short: shortTimeoutMs, long: answerTimeoutMs };
/** Maximum number of API keys whose key names are kept, about 10 MB. Then all are dropped and built anew. */
const requestKeysMax = 5000;

/** Runs scripts, each with a deadline in Redis' own time. */
export class AdmissionStore {
  readonly redis: RedisStore;
  readonly #prefix: string;
  readonly #clock: Clock;
  readonly #requestKeys = new Map<string, RequestKeys>();
  /**
   * Moment of Redis' clock, in whole milliseconds. Values read from the database before this moment are read again: a
   * gateway may have charged something that Redis does not know of.
   */
  notBeforeMs = 0;
  /** Redis' clock minus the monotonic clock here. Too large by at most the time that a call takes to reach Redis. */
  #offsetMs: number | null = null;
  #sampleMs = 0;
  #sampledAtMs = 0;

  /** @param prefix start of all names in Redis */
  constructor(store: RedisStore, prefix: string, clock: Clock) {
    this.redis = store;
    this.#prefix = prefix;
    this.#clock = clock;
  }

  /** Sorted set of organizations, scored by the last time that their balance was read. It has no hash tag. */
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
    return {
      use: `${base}:use`,
      slots: `${base}:slots`,
      monthLoading: `${base}:loading`,
      registeredKey: `${base}:told:`,
    };
  }

  /** Returns the same arrays for an API key each time, while they are cached. */
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
   * Runs a script. Sends a script again that reached Redis too late and did nothing, while its caller still waits.
   * @param args not empty, without line breaks
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

  /** Does the same as `run`, with the arguments already joined as lines. */
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
      if (attempt === lateAttemptsMax) throw new RedisAwayError('Redis did not answer in time', false);
    }
  }

  /** Returns the current time of Redis' clock, asking Redis if its clock was never read. */
  async nowMs(): Promise<number> {
    return this.#clock.monotonicMs() + (this.#offsetMs ?? (await this.#readClock()));
  }

  /** Current time of Redis' clock, without asking Redis: this machine's time if Redis' clock was never read. */
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

  /** @param isSure true if the known offset is certainly wrong */
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
