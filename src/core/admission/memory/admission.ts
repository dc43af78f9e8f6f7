import {
  type Admission,
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  askOfCurrent,
  budgetsOf,
  LedgerHealth,
  type Extension,
  type HardBudget,
  heldFor,
  type KeyRef,
  type LoadDay,
  type LoadSpent,
  type ModelMove,
  modelRefusal,
  noBudgets,
  type ProjectLimit,
  projectLimitOf,
  refusalOf,
  type Settlement,
  type Spender,
  type Wanted,
} from '#core/admission/contract/contract.ts';
import {
  countAdmitted,
  type KeyLimits,
  type KeyUse,
  type LimitsView,
  nextMonthMs,
  refuseByLimits,
  reserve,
  rollWindow,
  shiftRefusal,
  shiftView,
  tighterView,
  unusedKey,
  viewLimits,
} from '#core/limits/limits.ts';
import { MemoryAccounts } from './accounts.ts';
import { type Bound, exhaustedOf, leastLeft, MemoryBudgets, refuseByBudgets } from './budgets.ts';
import {
  availableMicroUsd,
  changeHold,
  changeSlots,
  type Hold,
  holdFor,
  holdsOfSlot,
  idsOfModel,
  type Known,
  lacksHold,
  refuseByFunds,
  slotsOf,
} from './holds.ts';
import { type Key, MemoryKeys, reserveOfMonth } from './keys.ts';
import { MemoryModels, type ModelBound } from './models.ts';
import type { MemoryAdmissionOptions } from './options.ts';

export type { MemoryAdmissionOptions } from './options.ts';

const staleMsDefault = 300_000;

type Decide = (known: Known) => AdmitResult;

const noRequests: LoadDay = () => Promise.resolve({ requests: 0, counted: [] });
const nothingSpent: LoadSpent = () => Promise.resolve({ picoUsd: 0n, counted: [] });

/** Admission of one gateway, in this process's memory. */
export function createMemoryAdmission(options: MemoryAdmissionOptions): Admission {
  return new MemoryAdmission(options);
}

class MemoryAdmission implements Admission {
  readonly #options: MemoryAdmissionOptions;
  readonly #books: LedgerHealth;
  readonly #accounts: MemoryAccounts;
  readonly #keys: MemoryKeys;
  readonly #budgets: MemoryBudgets;
  readonly #models: MemoryModels;
  readonly #holds = new Map<string, Hold>();
  /**
   * Time in which windows are counted, minus the monotonic time. Windows pass in real time, whatever the clock shows.
   */
  readonly #windowsAheadMs: number;

  constructor(options: MemoryAdmissionOptions) {
    this.#options = options;
    this.#windowsAheadMs = options.clock.now() - options.clock.monotonicMs();
    this.#books = new LedgerHealth({ clock: options.clock, staleMs: options.staleMs ?? staleMsDefault });
    this.#accounts = new MemoryAccounts({
      ...options,
      books: this.#books,
      holdsOf: (account) => new Map([...this.#holds].filter(([, hold]) => hold.account === account)),
    });
    this.#keys = new MemoryKeys({ ...options, books: this.#books, holds: this.#holds });
    this.#budgets = new MemoryBudgets({
      books: this.#books,
      clock: options.clock,
      loadSpent: options.loadSpent ?? nothingSpent,
      holdsOf: (slot) => holdsOfSlot(this.#holds, slot),
    });
    this.#models = new MemoryModels({
      books: this.#books,
      clock: options.clock,
      loadDay: options.loadDay ?? noRequests,
      holdsOf: (slot) => idsOfModel(this.#holds, slot),
      windowsNowMs: () => this.#windowsNowMs,
    });
    options.onCredit((organizationId, deltaPicoUsd) => this.#accounts.credited(organizationId, deltaPicoUsd));
  }

  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (known) => this.#take(known, request));
  }

  check(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    return this.#withBooks(request, (known) => this.#decide(known, request));
  }

  extend(requestId: string, moreMicroUsd: bigint, leastMicroUsd = 0n): Extension | Promise<Extension> {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return 0n;
    const { organizationId } = hold.account;
    const budgets = (): readonly HardBudget[] => this.#budgetsLeft(requestId, hold);
    const bounds = this.#budgets.current(organizationId, budgets());
    const wanted = { moreMicroUsd, leastMicroUsd };
    if (bounds !== null) return this.#extend(requestId, wanted, bounds);
    return this.#readBounds(organizationId, budgets).then(
      (read) => this.#extend(requestId, wanted, read),
      () => null,
    );
  }

  #extend(requestId: string, { moreMicroUsd, leastMicroUsd }: Wanted, bounds: readonly Bound[]): Extension {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return 0n;
    const available = leastLeft(availableMicroUsd(hold.account), bounds);
    const added = available < moreMicroUsd ? available : moreMicroUsd;
    if (added <= 0n || available < leastMicroUsd) {
      return availableMicroUsd(hold.account) <= 0n ? 0n : (exhaustedOf(bounds) ?? 0n);
    }
    changeHold(hold, added);
    return added;
  }

  move(requestId: string, move: ModelMove): boolean | Promise<boolean> {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return false;
    const { organizationId } = hold.account;
    const again = (reading: Promise<unknown>): Promise<boolean> =>
      reading.then(
        () => this.move(requestId, move),
        () => false,
      );
    const budgets = (): readonly HardBudget[] => this.#budgetsOf(requestId, hold.spender, move.model);
    const bounds = this.#budgets.current(organizationId, budgets());
    if (bounds === null) return again(this.#readBounds(organizationId, budgets));
    const limit = this.#limitOfMove(hold, move);
    const bound = limit === null ? null : this.#models.boundBy(limit);
    if (bound !== null && !move.isForced && !this.#models.knowsDay(bound)) {
      return again(this.#models.readDay(organizationId, bound));
    }
    if (!move.isForced && lacksHold(bounds, hold)) return false;
    if (!this.#moveTo(hold, bound, move)) return false;
    changeSlots(hold, bounds);
    hold.modelId = move.model;
    return true;
  }

  #limitOfMove({ spender }: Hold, { model }: ModelMove): ProjectLimit | null {
    if (spender === null) return null;
    return projectLimitOf(this.#options.projectLimits, { spender, model });
  }

  #moveTo(hold: Hold, bound: ModelBound | null, { estimatedTokens, isForced }: ModelMove): boolean {
    if (bound !== null && hold.model?.slot === bound.slot) return true;
    if (bound !== null && !isForced && this.#models.refuse(bound, estimatedTokens) !== null) return false;
    if (hold.model !== null) this.#models.giveBack(hold.model);
    hold.model = bound === null ? null : this.#models.take(bound, estimatedTokens);
    return true;
  }

  spooled(requestId: string, used: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined || hold.spooled !== null) return;
    hold.spooled = used;
    changeHold(hold, heldFor(used.chargedPicoUsd) - hold.heldMicroUsd);
    this.#correct(hold, used.tokens);
  }

  settle(requestId: string, { chargedPicoUsd, tokens }: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return;
    this.#holds.delete(requestId);
    const { account, key, slots, model } = hold;
    changeHold(hold, -hold.heldMicroUsd);
    if (model !== null) this.#models.settled(model);
    if (!hold.isCharged) account.balancePicoUsd -= chargedPicoUsd;
    account.changes += 1;
    key.changes += 1;
    for (const { slot, isCounted } of slots.values()) {
      slot.changes += 1;
      if (!isCounted && slot.spentPicoUsd !== null) slot.spentPicoUsd += chargedPicoUsd;
    }
    const now = this.#budgetsOf(requestId, hold.spender, hold.modelId);
    if (now.length > 0) this.#forgetNewBudgets(hold, now);
    if (hold.spooled === null) this.#correct(hold, tokens);
  }

  /**
   * Forgets budgets that were created while the request ran: only the database has their charges, so they are read
   * again.
   */
  #forgetNewBudgets({ account, slots }: Hold, budgets: readonly HardBudget[]): void {
    const made = budgets.filter(({ slot }) => !slots.has(slot));
    this.#budgets.forget(account.organizationId, made);
  }

  settleReplayed(_organizationId: string, _keyId: string, requestId: string, used: Settlement): void {
    if (this.#holds.has(requestId)) this.settle(requestId, used);
    else this.#models.forgetDays();
  }

  forgetBooks(): void {
    this.#accounts.forget();
    this.#keys.forget();
    this.#budgets.forgetAll();
    this.#models.forgetDays();
  }

  view({ keyId, limits }: KeyRef): LimitsView {
    const nowMs = this.#windowsNowMs;
    const use = this.#keys.find(keyId)?.use ?? unusedKey();
    rollWindow(use, limits, nowMs);
    return this.#viewOf(use, limits, nowMs);
  }

  heldMicroUsd(organizationId: string): bigint {
    return this.#accounts.find(organizationId)?.heldMicroUsd ?? 0n;
  }

  heldOfSlot(organizationId: string, slot: string): bigint {
    return this.#budgets.find(organizationId, slot)?.heldMicroUsd ?? 0n;
  }

  get #windowsNowMs(): number {
    return Math.floor(this.#options.clock.monotonicMs() + this.#windowsAheadMs);
  }

  /** Returns the limits in the time of the system clock. */
  #viewOf(use: KeyUse, limits: KeyLimits, nowMs: number): LimitsView {
    return shiftView(viewLimits(use, limits, nowMs), this.#options.clock.now() - nowMs);
  }

  #budgetsOf(requestId: string, spender: Spender | null | undefined, model: string | undefined): readonly HardBudget[] {
    return budgetsOf(this.#options.budgets, { requestId, spender: spender ?? undefined, model });
  }

  /** Returns the budgets that bound a running request now: those it was admitted with that still exist. */
  #budgetsLeft(requestId: string, { spender, slots, modelId }: Hold): readonly HardBudget[] {
    if (slots.size === 0) return noBudgets;
    return this.#budgetsOf(requestId, spender, modelId).filter(({ slot }) => slots.has(slot));
  }

  #readBounds(organizationId: string, budgets: () => readonly HardBudget[]): Promise<readonly Bound[]> {
    return askOfCurrent(budgets, (asked) => this.#budgets.read(organizationId, asked));
  }

  /** Returns the project limits for the request's model. Creates nothing for a request without limits. */
  #modelOf(request: AdmitRequest): ModelBound | null {
    const limit = projectLimitOf(this.#options.projectLimits, request);
    return limit === null ? null : this.#models.boundBy(limit);
  }

  /** Decides at once if balance, month and budgets are known, else after they have been read. */
  #withBooks(request: AdmitRequest, decide: Decide): AdmitResult | Promise<AdmitResult> {
    const { organizationId, requestId, spender, model: modelId } = request;
    const account = this.#accounts.current(organizationId);
    const key = this.#keys.keyOf(request.keyId, () => this.#windowsNowMs);
    const bounds = this.#budgets.current(organizationId, this.#budgetsOf(requestId, spender, modelId));
    const model = this.#modelOf(request);
    const isKnown = this.#keys.knowsMonth(key, request.limits) && (model === null || this.#models.knowsDay(model));
    if (account === null || bounds === null || !isKnown) return this.#afterLoading(request, key, decide);
    const result = decide({ account, key, bounds, model });
    if (result.ok || result.code !== 'insufficient_funds' || !this.#accounts.mayBeOutdated(account)) return result;
    return this.#afterLoading(request, key, decide);
  }

  async #afterLoading(request: AdmitRequest, key: Key, decide: Decide): Promise<AdmitResult> {
    const { organizationId, requestId, spender, model: modelId } = request;
    try {
      if (!this.#keys.knowsMonth(key, request.limits)) await this.#keys.loadMonth(request, key);
      const account = await this.#accounts.read(organizationId);
      const bounds = await this.#readBounds(organizationId, () => this.#budgetsOf(requestId, spender, modelId));
      for (;;) {
        const model = this.#modelOf(request);
        if (model === null || this.#models.knowsDay(model)) return decide({ account, key, bounds, model });
        await this.#models.readDay(organizationId, model);
      }
    } catch {
      return { ok: false, code: 'billing_unavailable' };
    }
  }

  /** Decides whether the request may run and how much it would hold; changes nothing. */
  #decide(known: Known, request: AdmitRequest): AdmitResult {
    const nowMs = this.#windowsNowMs;
    const refused = this.#refuse(known, request, nowMs);
    if (refused !== null) return refused;
    return { ok: true, heldMicroUsd: holdFor(known, request), view: this.#viewOfAll(known, request.limits, nowMs) };
  }

  #take(known: Known, request: AdmitRequest): AdmitResult {
    const nowMs = this.#windowsNowMs;
    const refused = this.#refuse(known, request, nowMs);
    if (refused !== null) return refused;
    const { account, key, bounds, model } = known;
    const { limits, estimatedTokens, keyId, spender = null } = request;
    const { use, monthMs } = key;
    const heldMicroUsd = holdFor(known, request);
    const reservedTokens = reserve(estimatedTokens, limits.tokensPerMinute);
    const monthTokens = monthMs === null ? 0 : reserveOfMonth(estimatedTokens, limits);
    key.changes += 1;
    countAdmitted(use, nowMs);
    use.tokens += reservedTokens;
    use.monthTokens += monthTokens;
    const hold: Hold = {
      account,
      keyId,
      key,
      limits,
      estimatedTokens,
      windowStartMs: use.windowStartMs,
      reservedTokens,
      monthMs,
      monthTokens,
      spender,
      slots: slotsOf(bounds),
      modelId: request.model,
      model: model === null ? null : this.#models.take(model, estimatedTokens),
      heldMicroUsd: 0n,
      isCharged: false,
      spooled: null,
    };
    changeHold(hold, heldMicroUsd);
    this.#holds.set(request.requestId, hold);
    return { ok: true, heldMicroUsd, view: this.#viewOfAll(known, limits, nowMs) };
  }

  #refuse(known: Known, request: AdmitRequest, nowMs: number): AdmitRefusal | null {
    const { account, key, bounds } = known;
    rollWindow(key.use, request.limits, nowMs);
    const refused = refuseByFunds(account, request) ?? refuseByBudgets(bounds, request.neededMicroUsd);
    return refused ?? this.#refuseByLimits(known, request, nowMs);
  }

  #refuseByLimits(known: Known, { limits, estimatedTokens }: AdmitRequest, nowMs: number): AdmitRefusal | null {
    const { key, model } = known;
    const aheadMs = this.#options.clock.now() - nowMs;
    const monthEndMs = nextMonthMs(key.monthMs ?? nowMs + aheadMs) - aheadMs;
    const ofKey = refuseByLimits(key.use, limits, estimatedTokens, { nowMs, monthEndMs });
    const ofModel = model === null ? null : this.#models.refuse(model, estimatedTokens);
    if (ofKey === null && ofModel === null) return null;
    const shifted = ofKey === null ? null : shiftRefusal(ofKey, aheadMs);
    return refusalOf(shifted, modelRefusal(model?.limit ?? null, ofModel), this.#viewOfAll(known, limits, nowMs));
  }

  #viewOfAll({ key, model }: Known, limits: KeyLimits, nowMs: number): LimitsView {
    const view = this.#viewOf(key.use, limits, nowMs);
    return model === null ? view : tighterView(view, this.#models.view(model));
  }

  /** Replaces reserved tokens with used ones. A window that is over gives nothing back. */
  #correct(hold: Hold, tokens: number): void {
    const { key, limits, monthMs, windowStartMs, reservedTokens, model } = hold;
    const { use } = key;
    use.running -= 1;
    if (model !== null) this.#models.correct(model, tokens);
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
}
