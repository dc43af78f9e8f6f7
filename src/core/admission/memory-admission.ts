import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import {
  countAdmitted,
  monthStartMs,
  refuseByLimits,
  reserve,
  rollWindow,
  unusedKey,
  viewLimits,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
} from '#core/limits/limits.ts';
import type { Admission, AdmitRefusal, AdmitRequest, AdmitResult, KeyRef, Settlement } from './contract.ts';

export interface MemoryAdmissionOptions {
  /** Reads an organization's balance from the books, in pico-dollars. */
  readonly loadBalance: (organizationId: string) => Promise<bigint>;
  /** Reads the tokens that the books have of a key since a moment, in milliseconds since the Unix epoch. */
  readonly loadTokens: (keyId: string, organizationId: string, sinceMs: number) => Promise<number>;
  /** Calls the listener after a credit or an adjustment was booked. */
  readonly onCredit: (listener: (organizationId: string, deltaPicoUsd: bigint) => void) => void;
  readonly clock: Clock;
}

/** A balance without holds is read again after this long: something else than this process may have booked. */
const knownForMs = 30_000;
/** API keys that use nothing are forgotten once so many are kept. */
const keysKeptMax = 10_000;

interface Account {
  readonly organizationId: string;
  readonly loadedMs: number;
  balancePicoUsd: bigint;
  heldMicroUsd: bigint;
}

interface Key {
  readonly use: KeyUse;
  /** First moment of the month that `use.monthTokens` counts; null while that is not known. */
  monthMs: number | null;
}

interface Hold {
  readonly account: Account;
  readonly key: Key;
  readonly limits: KeyLimits;
  readonly monthMs: number | null;
  /** Start of the window that the reservation counts in. */
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  readonly reservedMonthTokens: number;
  heldMicroUsd: bigint;
}

type Decide = (account: Account, key: Key) => AdmitResult;

const availableMicroUsd = (account: Account): bigint => account.balancePicoUsd / PICO_PER_MICRO - account.heldMicroUsd;

/** Admission of one gateway, in this process's memory. */
export function createMemoryAdmission(options: MemoryAdmissionOptions): Admission {
  return new MemoryAdmission(options);
}

class MemoryAdmission implements Admission {
  readonly #options: MemoryAdmissionOptions;
  readonly #accounts = new Map<string, Account>();
  readonly #loading = new Map<string, Promise<Account>>();
  /** Credits booked while a balance was being read, by organization. */
  readonly #creditsSeen = new Map<string, number>();
  readonly #keys = new Map<string, Key>();
  readonly #monthsLoading = new Map<string, Promise<void>>();
  readonly #holds = new Map<string, Hold>();

  constructor(options: MemoryAdmissionOptions) {
    this.#options = options;
    options.onCredit((organizationId, deltaPicoUsd) => this.#credited(organizationId, deltaPicoUsd));
  }

  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (account, key) => this.#take(account, key, request));
  }

  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (account, key) => this.#decide(account, key, request));
  }

  extend(requestId: string, moreMicroUsd: bigint): bigint {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return 0n;
    const available = availableMicroUsd(hold.account);
    const added = available < moreMicroUsd ? available : moreMicroUsd;
    if (added <= 0n) return 0n;
    hold.account.heldMicroUsd += added;
    hold.heldMicroUsd += added;
    return added;
  }

  settle(requestId: string, { chargedPicoUsd, tokens }: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return;
    this.#holds.delete(requestId);
    hold.account.heldMicroUsd -= hold.heldMicroUsd;
    hold.account.balancePicoUsd -= chargedPicoUsd;
    this.#correct(hold, tokens);
    this.#forgetIdle(hold.account);
  }

  view({ keyId, limits }: KeyRef): LimitsView {
    const nowMs = this.#options.clock.now();
    const use = this.#keys.get(keyId)?.use ?? unusedKey();
    rollWindow(use, limits, nowMs);
    return viewLimits(use, limits, nowMs);
  }

  heldMicroUsd(organizationId: string): bigint {
    return this.#accounts.get(organizationId)?.heldMicroUsd ?? 0n;
  }

  #keyOf(keyId: string): Key {
    const found = this.#keys.get(keyId);
    if (found !== undefined) return found;
    if (this.#keys.size >= keysKeptMax) this.#forgetKeys();
    const key: Key = { use: unusedKey(), monthMs: null };
    this.#keys.set(keyId, key);
    return key;
  }

  #knowsMonth(key: Key, limits: KeyLimits): boolean {
    return limits.monthlyTokenLimit === null || key.monthMs === monthStartMs(this.#options.clock.now());
  }

  /** Decides at once where the balance and the month are known, else when they have been read. */
  #withBooks(request: AdmitRequest, decide: Decide): AdmitResult | Promise<AdmitResult> {
    const account = this.#accounts.get(request.organizationId);
    const key = this.#keyOf(request.keyId);
    if (account !== undefined && this.#knowsMonth(key, request.limits)) return decide(account, key);
    return this.#afterLoading(request, key, decide);
  }

  async #afterLoading(request: AdmitRequest, key: Key, decide: Decide): Promise<AdmitResult> {
    try {
      if (!this.#knowsMonth(key, request.limits)) await this.#loadMonth(request, key);
      const account = this.#accounts.get(request.organizationId) ?? (await this.#loadOnce(request.organizationId));
      return decide(account, key);
    } catch {
      return { ok: false, code: 'billing_unavailable' };
    }
  }

  /** Whether the request may run and what it would hold; changes nothing. */
  #decide(account: Account, key: Key, request: AdmitRequest): AdmitResult {
    const nowMs = this.#options.clock.now();
    rollWindow(key.use, request.limits, nowMs);
    const refused = refuseByFunds(account, request) ?? this.#refuseByLimits(key, request, nowMs);
    if (refused !== null) return refused;
    const available = availableMicroUsd(account);
    const heldMicroUsd = available < request.wantedMicroUsd ? available : request.wantedMicroUsd;
    return { ok: true, heldMicroUsd, view: viewLimits(key.use, request.limits, nowMs) };
  }

  #take(account: Account, key: Key, request: AdmitRequest): AdmitResult {
    const decided = this.#decide(account, key, request);
    if (!decided.ok) return decided;
    const { heldMicroUsd } = decided;
    const nowMs = this.#options.clock.now();
    const { limits, estimatedTokens } = request;
    const { use } = key;
    const reservedTokens = reserve(estimatedTokens, limits.tokensPerMinute);
    const reservedMonthTokens = reserve(estimatedTokens, limits.monthlyTokenLimit);
    account.heldMicroUsd += heldMicroUsd;
    countAdmitted(use, nowMs);
    use.tokens += reservedTokens;
    use.monthTokens += reservedMonthTokens;
    const { windowStartMs } = use;
    const { monthMs } = key;
    const hold = { account, key, limits, monthMs, windowStartMs, reservedTokens, reservedMonthTokens, heldMicroUsd };
    this.#holds.set(request.requestId, hold);
    return { ok: true, heldMicroUsd, view: viewLimits(use, limits, nowMs) };
  }

  #refuseByLimits({ use }: Key, { limits, estimatedTokens }: AdmitRequest, nowMs: number): AdmitRefusal | null {
    const refused = refuseByLimits(use, limits, estimatedTokens, nowMs);
    return refused === null ? null : { ok: false, ...refused, limits: viewLimits(use, limits, nowMs) };
  }

  /** Puts what was used in the place of what was reserved. A window that is over gives nothing back. */
  #correct({ key, limits, monthMs, windowStartMs, reservedTokens, reservedMonthTokens }: Hold, tokens: number): void {
    const { use } = key;
    use.running -= 1;
    if (limits.tokensPerMinute !== null) {
      rollWindow(use, limits, this.#options.clock.now());
      const beyond = tokens - reservedTokens;
      if (beyond > 0 || use.windowStartMs === windowStartMs) use.tokens = Math.max(0, use.tokens + beyond);
      if (use.windowStartMs === 0 && use.tokens > 0) use.windowStartMs = this.#options.clock.now();
    }
    if (monthMs !== null && key.monthMs === monthMs) use.monthTokens += tokens - reservedMonthTokens;
  }

  #credited(organizationId: string, deltaPicoUsd: bigint): void {
    const account = this.#accounts.get(organizationId);
    if (account !== undefined) account.balancePicoUsd += deltaPicoUsd;
    else if (this.#loading.has(organizationId)) {
      this.#creditsSeen.set(organizationId, (this.#creditsSeen.get(organizationId) ?? 0) + 1);
    }
  }

  #loadOnce(organizationId: string): Promise<Account> {
    const running = this.#loading.get(organizationId);
    if (running !== undefined) return running;
    const started = this.#load(organizationId).finally(() => this.#loading.delete(organizationId));
    this.#loading.set(organizationId, started);
    return started;
  }

  async #load(organizationId: string): Promise<Account> {
    for (;;) {
      const seen = this.#creditsSeen.get(organizationId) ?? 0;
      const balancePicoUsd = await this.#options.loadBalance(organizationId);
      // A credit that was booked while the balance was read may or may not be in it: read again.
      if ((this.#creditsSeen.get(organizationId) ?? 0) !== seen) continue;
      const loadedMs = this.#options.clock.monotonicMs();
      const account = { organizationId, loadedMs, balancePicoUsd, heldMicroUsd: 0n };
      this.#accounts.set(organizationId, account);
      this.#creditsSeen.delete(organizationId);
      return account;
    }
  }

  #loadMonth({ keyId, organizationId }: AdmitRequest, key: Key): Promise<void> {
    const running = this.#monthsLoading.get(keyId);
    if (running !== undefined) return running;
    const sinceMs = monthStartMs(this.#options.clock.now());
    const started = this.#options
      .loadTokens(keyId, organizationId, sinceMs)
      .then((tokens) => {
        key.use.monthTokens = tokens;
        key.monthMs = sinceMs;
      })
      .finally(() => this.#monthsLoading.delete(keyId));
    this.#monthsLoading.set(keyId, started);
    return started;
  }

  /** Where nothing is held nothing is still to be taken off: PostgreSQL alone says the balance. */
  #forgetIdle(account: Account): void {
    if (account.heldMicroUsd !== 0n) return;
    if (this.#options.clock.monotonicMs() - account.loadedMs < knownForMs) return;
    if (this.#accounts.get(account.organizationId) === account) this.#accounts.delete(account.organizationId);
  }

  /** A key without a window, debt and running requests is as good as a new one; its month is read again. */
  #forgetKeys(): void {
    const endedMs = this.#options.clock.now() - 60_000;
    for (const [keyId, { use }] of this.#keys) {
      if (use.running === 0 && use.tokens === 0 && use.windowStartMs < endedMs) this.#keys.delete(keyId);
    }
  }
}

function refuseByFunds(account: Account, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  const { balancePicoUsd, heldMicroUsd } = account;
  if (balancePicoUsd > 0n && availableMicroUsd(account) >= neededMicroUsd) return null;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
