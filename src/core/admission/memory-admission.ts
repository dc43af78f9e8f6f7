import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import {
  countAdmitted,
  monthStartMs,
  refuseByLimits,
  reserve,
  rollWindow,
  shiftRefusal,
  shiftView,
  unusedKey,
  viewLimits,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
} from '#core/limits/limits.ts';
import { BooksWatch } from './books-watch.ts';
import {
  heldFor,
  type Admission,
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  type CountedTokens,
  type KeyRef,
  type Settlement,
} from './contract.ts';
import { type Account, MemoryAccounts } from './memory-accounts.ts';

export interface MemoryAdmissionOptions {
  /** Reads an organization's balance from the books, in pico-dollars. */
  readonly loadBalance: (organizationId: string) => Promise<bigint>;
  /**
   * Reads the tokens that the books have of a key since a moment, in milliseconds since the Unix epoch, and which of
   * these requests are among them, at one moment.
   */
  readonly loadTokens: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Calls the listener after a credit or an adjustment was booked. */
  readonly onCredit: (listener: (organizationId: string, deltaPicoUsd: bigint) => void) => void;
  /** How long balances and months that are known serve while the books do not answer. */
  readonly staleMs?: number;
  readonly clock: Clock;
}

const staleMsDefault = 300_000;
/** Keys with nothing to remember are forgotten when there are this many of them. */
const keysKeptMax = 10_000;

interface Key {
  readonly use: KeyUse;
  /** First moment of the month that `use.monthTokens` counts; null while that is not known. */
  monthMs: number | null;
  /** Counts admissions and settlements: what is read of the books while one happens may hold it or not. */
  changes: number;
}

interface Hold {
  readonly account: Account;
  readonly keyId: string;
  readonly key: Key;
  readonly limits: KeyLimits;
  readonly estimatedTokens: number;
  /** Start of the window that the reservation counts in. */
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  /** The month that counts this request, and as what. */
  monthMs: number | null;
  monthTokens: number;
  heldMicroUsd: bigint;
  /** Durable, and not in the books yet: what was used, else null. */
  spooled: Settlement | null;
}

type Decide = (account: Account, key: Key) => AdmitResult;

const availableMicroUsd = (account: Account): bigint => account.balancePicoUsd / PICO_PER_MICRO - account.heldMicroUsd;

/** Admission of one gateway, in this process's memory. */
export function createMemoryAdmission(options: MemoryAdmissionOptions): Admission {
  return new MemoryAdmission(options);
}

class MemoryAdmission implements Admission {
  readonly #options: MemoryAdmissionOptions;
  readonly #books: BooksWatch;
  readonly #accounts: MemoryAccounts;
  readonly #keys = new Map<string, Key>();
  readonly #monthsLoading = new Map<string, Promise<void>>();
  readonly #holds = new Map<string, Hold>();
  /** The time in which windows are counted, less the monotonic one: it passes as they last, whatever the clock shows. */
  readonly #windowsAheadMs: number;

  constructor(options: MemoryAdmissionOptions) {
    this.#options = options;
    this.#windowsAheadMs = options.clock.now() - options.clock.monotonicMs();
    this.#books = new BooksWatch({ clock: options.clock, staleMs: options.staleMs ?? staleMsDefault });
    this.#accounts = new MemoryAccounts({ ...options, books: this.#books });
    options.onCredit((organizationId, deltaPicoUsd) => this.#accounts.credited(organizationId, deltaPicoUsd));
  }

  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (account, key) => this.#take(account, key, request));
  }

  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (account, key) => this.#decide(account, key, request));
  }

  extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd = 0n): bigint {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return 0n;
    const available = availableMicroUsd(hold.account);
    const added = available < moreMicroUsd ? available : moreMicroUsd;
    if (added <= 0n || available < leastMicroUsd) return 0n;
    hold.account.heldMicroUsd += added;
    hold.heldMicroUsd += added;
    return added;
  }

  spooled(requestId: string, used: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return;
    hold.spooled = used;
    const heldMicroUsd = heldFor(used.chargedPicoUsd);
    hold.account.heldMicroUsd += heldMicroUsd - hold.heldMicroUsd;
    hold.heldMicroUsd = heldMicroUsd;
    this.#correct(hold, used.tokens);
  }

  settle(requestId: string, { chargedPicoUsd, tokens }: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return;
    this.#holds.delete(requestId);
    const { account, key } = hold;
    account.heldMicroUsd -= hold.heldMicroUsd;
    account.balancePicoUsd -= chargedPicoUsd;
    account.changes += 1;
    key.changes += 1;
    if (hold.spooled === null) this.#correct(hold, tokens);
  }

  settleReplayed(_organizationId: string, _keyId: string, requestId: string, used: Settlement): void {
    this.settle(requestId, used);
  }

  view({ keyId, limits }: KeyRef): LimitsView {
    const nowMs = this.#windowsNowMs;
    const use = this.#keys.get(keyId)?.use ?? unusedKey();
    rollWindow(use, limits, nowMs);
    return this.#viewOf(use, limits, nowMs);
  }

  heldMicroUsd(organizationId: string): bigint {
    return this.#accounts.find(organizationId)?.heldMicroUsd ?? 0n;
  }

  get #windowsNowMs(): number {
    return Math.floor(this.#options.clock.monotonicMs() + this.#windowsAheadMs);
  }

  /** In the time of the clock that everybody sees. */
  #viewOf(use: KeyUse, limits: KeyLimits, nowMs: number): LimitsView {
    return shiftView(viewLimits(use, limits, nowMs), this.#options.clock.now() - nowMs);
  }

  #keyOf(keyId: string): Key {
    const found = this.#keys.get(keyId);
    if (found !== undefined) return found;
    if (this.#keys.size >= keysKeptMax) this.#forgetKeys();
    const key: Key = { use: unusedKey(), monthMs: null, changes: 0 };
    this.#keys.set(keyId, key);
    return key;
  }

  #knowsMonth(key: Key, limits: KeyLimits): boolean {
    return limits.monthlyTokenLimit === null || key.monthMs === monthStartMs(this.#options.clock.now());
  }

  /** Decides at once where the balance and the month are known, else when they have been read. */
  #withBooks(request: AdmitRequest, decide: Decide): AdmitResult | Promise<AdmitResult> {
    const account = this.#accounts.current(request.organizationId);
    const key = this.#keyOf(request.keyId);
    if (account === null || !this.#knowsMonth(key, request.limits)) return this.#afterLoading(request, key, decide);
    const result = decide(account, key);
    if (result.ok || result.code !== 'insufficient_funds' || !this.#accounts.mayBeOutdated(account)) return result;
    return this.#afterLoading(request, key, decide);
  }

  async #afterLoading(request: AdmitRequest, key: Key, decide: Decide): Promise<AdmitResult> {
    try {
      if (!this.#knowsMonth(key, request.limits)) await this.#loadMonth(request, key);
      return decide(await this.#accounts.read(request.organizationId), key);
    } catch {
      return { ok: false, code: 'billing_unavailable' };
    }
  }

  /** Whether the request may run and what it would hold; changes nothing. */
  #decide(account: Account, key: Key, request: AdmitRequest): AdmitResult {
    const nowMs = this.#windowsNowMs;
    const refused = this.#refuse(account, key, request, nowMs);
    if (refused !== null) return refused;
    const view = this.#viewOf(key.use, request.limits, nowMs);
    return { ok: true, heldMicroUsd: holdFor(account, request), view };
  }

  #take(account: Account, key: Key, request: AdmitRequest): AdmitResult {
    const nowMs = this.#windowsNowMs;
    const refused = this.#refuse(account, key, request, nowMs);
    if (refused !== null) return refused;
    const { limits, estimatedTokens, keyId } = request;
    const { use, monthMs } = key;
    const heldMicroUsd = holdFor(account, request);
    const reservedTokens = reserve(estimatedTokens, limits.tokensPerMinute);
    const monthTokens = monthMs === null ? 0 : reserveOfMonth(estimatedTokens, limits);
    account.heldMicroUsd += heldMicroUsd;
    key.changes += 1;
    countAdmitted(use, nowMs);
    use.tokens += reservedTokens;
    use.monthTokens += monthTokens;
    this.#holds.set(request.requestId, {
      account,
      keyId,
      key,
      limits,
      estimatedTokens,
      windowStartMs: use.windowStartMs,
      reservedTokens,
      monthMs,
      monthTokens,
      heldMicroUsd,
      spooled: null,
    });
    return { ok: true, heldMicroUsd, view: this.#viewOf(use, limits, nowMs) };
  }

  #refuse(account: Account, key: Key, request: AdmitRequest, nowMs: number): AdmitRefusal | null {
    rollWindow(key.use, request.limits, nowMs);
    return refuseByFunds(account, request) ?? this.#refuseByLimits(key, request, nowMs);
  }

  #refuseByLimits({ use }: Key, { limits, estimatedTokens }: AdmitRequest, nowMs: number): AdmitRefusal | null {
    const refused = refuseByLimits(use, limits, estimatedTokens, nowMs);
    if (refused === null) return null;
    const hereMs = this.#options.clock.now();
    return { ok: false, ...shiftRefusal(refused, nowMs, hereMs), limits: this.#viewOf(use, limits, nowMs) };
  }

  /** Puts what was used in the place of what was reserved. A window that is over gives nothing back. */
  #correct(hold: Hold, tokens: number): void {
    const { key, limits, monthMs, windowStartMs, reservedTokens } = hold;
    const { use } = key;
    use.running -= 1;
    if (limits.tokensPerMinute !== null) {
      rollWindow(use, limits, this.#windowsNowMs);
      const beyond = tokens - reservedTokens;
      if (beyond > 0 || use.windowStartMs === windowStartMs) use.tokens = Math.max(0, use.tokens + beyond);
      if (use.windowStartMs === 0 && use.tokens > 0) use.windowStartMs = this.#windowsNowMs;
    }
    if (monthMs !== null && key.monthMs === monthMs) {
      use.monthTokens += tokens - hold.monthTokens;
      hold.monthTokens = tokens;
    }
  }

  #loadMonth({ keyId, organizationId, limits }: AdmitRequest, key: Key): Promise<void> {
    const running = this.#monthsLoading.get(keyId);
    if (running !== undefined) return running;
    const started = this.#readMonth({ keyId, organizationId, limits }, key).finally(() =>
      this.#monthsLoading.delete(keyId),
    );
    this.#monthsLoading.set(keyId, started);
    return started;
  }

  /** What the books have, and what runs or waits to be booked beside it. */
  async #readMonth({ keyId, organizationId, limits }: KeyRef, key: Key): Promise<void> {
    const sinceMs = monthStartMs(this.#options.clock.now());
    for (;;) {
      const { changes } = key;
      const ids = [...this.#holds].filter(([, hold]) => hold.keyId === keyId).map(([id]) => id);
      const read = () => this.#options.loadTokens({ keyId, organizationId }, sinceMs, ids);
      const { tokens, counted } = await this.#books.ask(read);
      if (key.changes !== changes) continue;
      key.monthMs = sinceMs;
      key.use.monthTokens = tokens;
      const inBooks = new Set(counted);
      for (const [id, hold] of this.#holds) {
        if (hold.keyId !== keyId) continue;
        hold.monthMs = inBooks.has(id) ? null : sinceMs;
        hold.monthTokens = hold.spooled?.tokens ?? reserveOfMonth(hold.estimatedTokens, limits);
        if (!inBooks.has(id)) key.use.monthTokens += hold.monthTokens;
      }
      return;
    }
  }

  /**
   * A key without a window, debt and running requests is as good as a new one; its month is read again, unless nobody
   * could say it.
   */
  #forgetKeys(): void {
    const endedMs = this.#windowsNowMs - 60_000;
    for (const [keyId, { use, monthMs }] of this.#keys) {
      if (use.running > 0 || use.tokens > 0 || use.windowStartMs >= endedMs) continue;
      if (monthMs === null || !this.#books.isAway) this.#keys.delete(keyId);
    }
  }
}

/** What a request counts as in a month that is counted, whether it is limited or not. */
function reserveOfMonth(estimatedTokens: number, { monthlyTokenLimit }: KeyLimits): number {
  return monthlyTokenLimit === null ? estimatedTokens : reserve(estimatedTokens, monthlyTokenLimit);
}

function holdFor(account: Account, { wantedMicroUsd }: AdmitRequest): bigint {
  const available = availableMicroUsd(account);
  return available < wantedMicroUsd ? available : wantedMicroUsd;
}

function refuseByFunds(account: Account, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  const { balancePicoUsd, heldMicroUsd } = account;
  if (balancePicoUsd > 0n && availableMicroUsd(account) >= neededMicroUsd) return null;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
