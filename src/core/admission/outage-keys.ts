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
import type { AdmissionStore } from './admission-store.ts';
import type { KeyRef } from './contract.ts';
import type { HoldLeases } from './hold-leases.ts';
import type { LastKnown } from './last-known.ts';
import type { OutageBooks } from './outage-books.ts';
import { OutageParts } from './outage-parts.ts';
import type { UntoldUse } from './own-hold.ts';

/** So long what ran in other gateways is taken to run still: nobody says when it ends. */
const othersRunMs = 60_000;

interface MonthOfKey {
  readonly startMs: number;
  tokens: number;
  /** How many divide what is left. */
  readonly gateways: number;
}

/** A key as this gateway counts it alone. */
export interface LocalKey {
  readonly organizationId: string;
  readonly keyId: string;
  /** Against this gateway's part of the limits; windows in the time of Redis' clock. */
  readonly use: KeyUse;
  /** The month that is counted, and its tokens, of all gateways as far as they are known; null while they are not. */
  month: MonthOfKey | null;
  tokensPerMinute: number | null;
  /** What ran in other gateways when Redis was last heard of. */
  readonly others: { readonly running: number; readonly untilMs: number };
  /** What was admitted here and has ended in the running window, and Redis was not told of. */
  ended: { requests: number; tokens: number };
  /** Whether something was charged that Redis was not told of. */
  isCharged: boolean;
  /** What Redis is being told. */
  telling: UntoldUse | null;
}

export const isUntold = ({ ended, isCharged, telling }: LocalKey): boolean =>
  ended.requests > 0 || isCharged || telling !== null;

/** Beside what ran in other gateways there may be room for less than this gateway's part, but for one always. */
function beside({ others }: LocalKey, limits: KeyLimits, divided: KeyLimits, nowMs: number): KeyLimits {
  const { maxConcurrency: part } = divided;
  if (part === null || limits.maxConcurrency === null || others.running === 0 || nowMs > others.untilMs) return divided;
  return { ...divided, maxConcurrency: Math.max(1, Math.min(part, limits.maxConcurrency - others.running)) };
}

/** This gateway's part of a key's limits. */
export function partOfLimits(key: LocalKey, limits: KeyLimits, gateways: number, nowMs: number): KeyLimits {
  return beside(key, limits, divideLimits(limits, gateways), nowMs);
}

/** The whole limit, and what this gateway may give of it. @param aheadMs of this machine's clock before Redis' */
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
  readonly books: Pick<OutageBooks, 'gateways' | 'monthTokens'>;
  readonly known: Pick<LastKnown, 'use' | 'isUseHeard'>;
  readonly leases: Pick<HoldLeases, 'running'>;
  readonly store: Pick<AdmissionStore, 'guessedNowMs'>;
}

/** What keys have used, as far as it is known while Redis is silent. */
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

  /** The same, or one of an earlier outage that may come to serve. */
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

  /** @throws an Error where nothing is known and the books do not answer */
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
    const word = known.use(keyId) ?? { use: unusedKey(), monthMs: null };
    const startMs = monthStartMs(store.guessedNowMs);
    const isCounted = word.monthMs === startMs;
    const isLimited = limits.monthlyTokenLimit !== null;
    const heard = isCounted ? word.use.monthTokens : null;
    const tokens = isLimited ? await this.#monthTokens({ organizationId, keyId, limits }, startMs, heard) : heard;
    const month = isLimited && tokens !== null ? { startMs, tokens, gateways } : null;
    const made = this.#keys.get(keyId);
    const use = { ...word.use, monthTokens: tokens ?? word.use.monthTokens };
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
    const nothing = { ended: { requests: 0, tokens: 0 }, isCharged: false, telling: null };
    const key: LocalKey = { organizationId, keyId, use: divided, month, tokensPerMinute, others, ...nothing };
    this.#keys.set(keyId, key);
    return key;
  }

  /** The part of an earlier outage, less what the books say that others have used since. */
  async #goOn(key: LocalKey, of: KeyRef): Promise<LocalKey> {
    const { month } = key;
    if (of.limits.monthlyTokenLimit === null || month === null) return key;
    const { startMs, tokens } = month;
    this.#usedMore(key.keyId, startMs, (await this.#monthTokens(of, startMs, tokens)) - tokens);
    return key;
  }

  /** Redis may have said it before others used more: the books know of that. */
  async #monthTokens(key: KeyRef, startMs: number, heard: number | null): Promise<number> {
    const late = heard === null ? null : (tokens: number) => this.#usedMore(key.keyId, startMs, tokens - heard);
    const said = await this.#options.books.monthTokens(key, startMs, late);
    return Math.max(heard ?? 0, said ?? 0);
  }

  /** What was used here while the books were asked may be in it twice: the part is too small then, never too large. */
  #usedMore(keyId: string, startMs: number, beyond: number): void {
    const key = this.#keys.get(keyId);
    if (key?.month?.startMs !== startMs || beyond <= 0) return;
    key.month.tokens += beyond;
    key.use.monthTokens += Math.ceil(beyond / key.month.gateways);
  }
}
