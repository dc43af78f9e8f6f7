import type { KeyRef } from '#core/admission/contract/contract.ts';
import type { AdmissionStore, HoldLeases, LastKnown, UnregisteredUse } from '#core/admission/redis/redis.ts';
import {
  divideLimits,
  divideUse,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
  monthStartMs,
  rollWindow,
  shiftView,
  unusedKey,
  viewLimits,
} from '#core/limits/limits.ts';
import type { OutageAccounts } from './accounts.ts';
import { OutageParts } from './parts.ts';

/** Milliseconds for which requests of other gateways are assumed to run, since no message tells when they end. */
const othersRunMs = 60_000;

interface MonthOfKey {
  readonly startMs: number;
  tokens: number;
  /** Number of gateways that divide the remainder. */
  readonly gateways: number;
}

/** A key as this gateway counts it during an outage. */
export interface LocalKey {
  readonly organizationId: string;
  readonly keyId: string;
  /** Use within this gateway's part of the limits; windows are in the time of Redis' clock. */
  readonly use: KeyUse;
  /** Counted month and its tokens of all gateways, as far as they are known; null while they are unknown. */
  month: MonthOfKey | null;
  tokensPerMinute: number | null;
  /** Requests that ran in other gateways at Redis' last answer. */
  readonly others: { readonly running: number; readonly untilMs: number };
  /** Requests admitted here that have ended in the running window and that Redis does not have. */
  ended: { requests: number; tokens: number };
  /** True if a charge was made that Redis does not have. */
  isCharged: boolean;
  /** Use that is on its way to Redis. */
  registering: UnregisteredUse | null;
}

export const isUnregistered = ({ ended, isCharged, registering }: LocalKey): boolean =>
  ended.requests > 0 || isCharged || registering !== null;

/** Reduces concurrency by the requests of other gateways: below this gateway's part if need be, but never below one. */
function beside({ others }: LocalKey, limits: KeyLimits, divided: KeyLimits, nowMs: number): KeyLimits {
  const { maxConcurrency: part } = divided;
  if (part === null || limits.maxConcurrency === null || others.running === 0 || nowMs > others.untilMs) return divided;
  return { ...divided, maxConcurrency: Math.max(1, Math.min(part, limits.maxConcurrency - others.running)) };
}

/** Returns this gateway's part of a key's limits. */
export function partOfLimits(key: LocalKey, limits: KeyLimits, gateways: number, nowMs: number): KeyLimits {
  return beside(key, limits, divideLimits(limits, gateways), nowMs);
}

/**
 * Returns the whole limits, and what this gateway may give of them. @param aheadMs lead of this machine's clock over
 * Redis'
 */
export function viewOfPart(
  { use }: LocalKey,
  limits: KeyLimits,
  divided: KeyLimits,
  { nowMs, aheadMs }: { readonly nowMs: number; readonly aheadMs: number },
): LimitsView {
  const { requests, tokens, ...left } = shiftView(viewLimits(use, divided, nowMs), aheadMs);
  const shown = (view: LimitsView['requests'], limit: number | null): LimitsView['requests'] =>
    view === null || limit === null ? null : { ...view, limit };
  const all = { requests: shown(requests, limits.requestsPerMinute), tokens: shown(tokens, limits.tokensPerMinute) };
  return { ...all, ...left };
}

export function rollKey(key: LocalKey, divided: KeyLimits, nowMs: number): void {
  const { windowStartMs } = key.use;
  rollWindow(key.use, divided, nowMs);
  if (key.use.windowStartMs !== windowStartMs) key.ended = { requests: 0, tokens: 0 };
}

export interface OutageKeysOptions {
  readonly books: Pick<OutageAccounts, 'gateways' | 'monthTokens'>;
  readonly known: Pick<LastKnown, 'use' | 'isUseHeard'>;
  readonly leases: Pick<HoldLeases, 'running'>;
  readonly store: Pick<AdmissionStore, 'guessedNowMs'>;
}

/** Use of keys, as far as it is known while Redis is unavailable. */
export class OutageKeys {
  readonly #options: OutageKeysOptions;
  readonly #keys: OutageParts<LocalKey>;
  readonly #reading = new Map<string, Promise<LocalKey>>();

  constructor(options: OutageKeysOptions, before: OutageKeys | null) {
    this.#options = options;
    this.#keys = new OutageParts(before === null ? null : before.#keys, (keyId) => options.known.isUseHeard(keyId));
  }

  get(keyId: string): LocalKey | undefined {
    return this.#keys.get(keyId);
  }

  /** Returns the key of this outage, or else of an earlier outage that may continue. */
  find(keyId: string): LocalKey | undefined {
    return this.#keys.find(keyId);
  }

  all(): readonly LocalKey[] {
    return this.#keys.all().map(([, key]) => key);
  }

  knowsMonth({ month }: LocalKey, limits: KeyLimits): boolean {
    if (limits.monthlyTokenLimit === null) return true;
    return month !== null && month.startMs === monthStartMs(this.#options.store.guessedNowMs);
  }

  /** Reads a key. @throws an Error if nothing is known and the database does not answer */
  read(key: KeyRef): Promise<LocalKey> {
    const { keyId, limits } = key;
    const made = this.#keys.get(keyId);
    if (made !== undefined && this.knowsMonth(made, limits)) return Promise.resolve(made);
    const running = this.#reading.get(keyId);
    if (running !== undefined) return running;
    const former = this.#keys.takeUp(keyId);
    if (former !== undefined) former.use.running = this.#options.leases.running(keyId);
    const goesOn = former !== undefined && this.knowsMonth(former, limits);
    const reading = (goesOn ? this.#goOn(former, key) : this.#make(key)).finally(() => this.#reading.delete(keyId));
    this.#reading.set(keyId, reading);
    return reading;
  }

  async #make({ organizationId, keyId, limits }: KeyRef): Promise<LocalKey> {
    const { books, known, leases, store } = this.#options;
    const gateways = await books.gateways();
    const lastKnown = known.use(keyId) ?? { use: unusedKey(), monthMs: null };
    const startMs = monthStartMs(store.guessedNowMs);
    const isCounted = lastKnown.monthMs === startMs;
    const isLimited = limits.monthlyTokenLimit !== null;
    const heard = isCounted ? lastKnown.use.monthTokens : null;
    const tokens = isLimited ? await this.#monthTokens({ organizationId, keyId, limits }, startMs, heard) : heard;
    const month = isLimited && tokens !== null ? { startMs, tokens, gateways } : null;
    const made = this.#keys.get(keyId);
    const use = { ...lastKnown.use, monthTokens: tokens ?? lastKnown.use.monthTokens };
    rollWindow(use, limits, store.guessedNowMs);
    const running = leases.running(keyId);
    const divided = divideUse(use, limits, gateways, running);
    if (made !== undefined) {
      if (!this.knowsMonth(made, limits)) {
        made.month = month;
        made.use.monthTokens = divided.monthTokens;
      }
      return made;
    }
    const { tokensPerMinute } = limits;
    const others = { running: Math.max(0, use.running - running), untilMs: store.guessedNowMs + othersRunMs };
    const nothing = { ended: { requests: 0, tokens: 0 }, isCharged: false, registering: null };
    const key: LocalKey = { organizationId, keyId, use: divided, month, tokensPerMinute, others, ...nothing };
    this.#keys.set(keyId, key);
    return key;
  }

  /** Continues the part of an earlier outage, minus what other gateways have used since according to the database. */
  async #goOn(key: LocalKey, of: KeyRef): Promise<LocalKey> {
    const { month } = key;
    if (of.limits.monthlyTokenLimit === null || month === null) return key;
    const { startMs, tokens } = month;
    this.#usedMore(key.keyId, startMs, (await this.#monthTokens(of, startMs, tokens)) - tokens);
    return key;
  }

  /**
   * Returns the larger count: other gateways may have used more since Redis' last answer, and the database has that.
   */
  async #monthTokens(key: KeyRef, startMs: number, heard: number | null): Promise<number> {
    const late = heard === null ? null : (tokens: number) => this.#usedMore(key.keyId, startMs, tokens - heard);
    const recorded = await this.#options.books.monthTokens(key, startMs, late);
    return Math.max(heard ?? 0, recorded ?? 0);
  }

  /**
   * Adds use of other gateways. Use of this gateway during the query may count twice: the part is then too small, never
   * too large.
   */
  #usedMore(keyId: string, startMs: number, beyond: number): void {
    const key = this.#keys.get(keyId);
    if (key?.month?.startMs !== startMs || beyond <= 0) return;
    key.month.tokens += beyond;
    key.use.monthTokens += Math.ceil(beyond / key.month.gateways);
  }
}
