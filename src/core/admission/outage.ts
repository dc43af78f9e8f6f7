import { randomUUID } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import {
  countAdmitted,
  divideUse,
  type KeyLimits,
  monthStartMs,
  refuseByLimits,
  reserve,
  rollWindow,
  shiftRefusal,
  unusedKey,
} from '#core/limits/limits.ts';
import type { AdmissionStore } from './admission-store.ts';
import {
  askOfCurrent,
  budgetsOf,
  heldFor,
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  type Extension,
  type HardBudget,
  type HardBudgets,
  type KeyRef,
  leastOf,
  type Settlement,
  type Wanted,
} from './contract.ts';
import { GivenOver } from './given-over.ts';
import type { HoldLeases, OwnHold, UntoldUse } from './hold-leases.ts';
import type { LastKnown } from './last-known.ts';
import type { OutageBooks, Share } from './outage-books.ts';
import { type BudgetPart, leftOfPart, OutageBudgets, refuseByParts } from './outage-budgets.ts';
import { isUntold, type LocalKey, partOfLimits, rollKey, viewOfPart } from './outage-keys.ts';

export interface OutageOptions {
  readonly store: AdmissionStore;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  readonly books: OutageBooks;
  readonly budgets?: HardBudgets;
  /** Decides a request that met the end of the outage. */
  readonly again: (request: AdmitRequest, deciding: Deciding) => AdmitResult | Promise<AdmitResult>;
  readonly leaseMs: number;
  readonly clock: Clock;
}

/** How a request is to be decided. */
export interface Deciding {
  readonly isDry: boolean;
  /** Redis was asked, and nobody knows what it said. */
  readonly isUnsure: boolean;
}

/** What decides about a request. */
interface Known {
  readonly share: Share;
  readonly key: LocalKey;
  readonly parts: readonly BudgetPart[];
}

interface LocalHold {
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  readonly monthTokens: number;
}

/** So long what ran in other gateways is taken to run still: nobody says when it ends. */
const othersRunMs = 60_000;

const unavailable: AdmitRefusal = { ok: false, code: 'billing_unavailable' };

/**
 * Admission while Redis is silent, in this process's memory. No gateway knows what the others admit meanwhile, so each
 * gives its own part of what all have: limits and what is left of them are divided by the gateways that live, at least
 * one of each; so is what was available of a wallet when it was first asked for. What runs here already counts.
 *
 * A part of a wallet is given once in an outage: were it divided again, more than there is would be given in the end.
 */
export class Outage {
  readonly #options: OutageOptions;
  readonly #keys = new Map<string, LocalKey>();
  readonly #holds = new Map<string, LocalHold>();
  readonly givenOver: GivenOver;
  readonly #budgets: OutageBudgets;
  #isOver = false;

  constructor(options: OutageOptions) {
    this.#options = options;
    this.givenOver = new GivenOver(options);
    this.#budgets = new OutageBudgets(options);
  }

  admit(request: AdmitRequest, deciding: Deciding): AdmitResult | Promise<AdmitResult> {
    const { books, known } = this.#options;
    if (known.isRevoked(request.keyId)) return { ok: false, code: 'unauthorized' };
    if (this.givenOver.has(request.organizationId)) return this.#inItsTurn(request, deciding);
    const share = books.share(request.organizationId);
    const key = this.#keys.get(request.keyId);
    const parts = this.#budgets.current(request.organizationId, budgetsOf(this.#options.budgets, request));
    if (share === null || key === undefined || parts === null || !this.#knowsMonth(key, request.limits)) {
      return this.#afterReading(request, deciding);
    }
    if (!books.mayServe) return unavailable;
    const result = this.#decide(request, { share, key, parts }, deciding);
    const isPoor = !result.ok && result.code === 'insufficient_funds';
    return isPoor && books.mayHaveMore(share) ? this.#afterReading(request, deciding) : result;
  }

  /** Adds to a hold as much as this gateway may give of what is wanted: nothing more says nothing of the wallet. */
  async extend(requestId: string, hold: OwnHold, { moreMicroUsd, leastMicroUsd }: Wanted): Promise<Extension> {
    const { books, budgets, leases } = this.#options;
    try {
      const share = await books.read(hold.organizationId);
      const parts = await this.#readParts(hold.organizationId, () =>
        budgetsOf(budgets, { requestId, spender: hold.spender }).filter(({ slot }) => hold.slots.includes(slot)),
      );
      if (this.#isOver || hold.isSettled) return null;
      const mayGive = books.mayServe && !this.givenOver.has(hold.organizationId);
      const least = leastOf(share.leftMicroUsd, parts.map(leftOfPart));
      const left = mayGive && least > 0n && least >= leastMicroUsd ? least : 0n;
      const added = left < moreMicroUsd ? left : moreMicroUsd;
      share.leftMicroUsd -= added;
      this.#budgets.changed(hold.organizationId, hold.slots, added);
      leases.raise(hold, added, false);
      return added === 0n ? null : added;
    } catch {
      return null;
    }
  }

  /** A hold shrank to what its request will be charged. @param before the hold as it was */
  spooled(requestId: string, before: OwnHold, used: Settlement): void {
    this.#giveBack(before, used);
    this.#correct(requestId, before, used.tokens);
  }

  /** @param hold as it was when it was settled */
  settled(requestId: string, hold: OwnHold, used: Settlement): void {
    this.#giveBack(hold, used);
    if (!hold.isSpooled) this.#correct(requestId, hold, used.tokens);
    const key = this.#keys.get(hold.keyId);
    const local = this.#holds.get(requestId);
    this.#holds.delete(requestId);
    if (key === undefined || hold.standing !== 'local') return;
    if (used.chargedPicoUsd > 0n) key.isCharged = true;
    if (local === undefined || local.windowStartMs !== key.use.windowStartMs) return;
    key.ended.requests += 1;
    if (key.tokensPerMinute !== null) key.ended.tokens += used.tokens;
  }

  /** Redis had admitted it before it fell silent. */
  admittedByRedis(request: AdmitRequest, heldMicroUsd: bigint): void {
    const { organizationId, keyId } = request;
    const slots = this.#options.leases.find(request.requestId)?.slots ?? [];
    this.#budgets.changed(organizationId, slots, heldMicroUsd);
    const share = this.#options.books.share(organizationId);
    if (share !== null) share.leftMicroUsd -= heldMicroUsd;
    const key = this.#keys.get(keyId);
    if (key !== undefined) countAdmitted(key.use, this.#options.store.guessedNowMs);
  }

  async #inItsTurn(request: AdmitRequest, deciding: Deciding): Promise<AdmitResult> {
    await this.givenOver.turn(request.organizationId);
    if (this.#isOver) return this.#options.again(request, deciding);
    return this.givenOver.has(request.organizationId) ? unavailable : this.admit(request, deciding);
  }

  /** Redis decides again: nothing more is decided here. */
  end(): void {
    this.#isOver = true;
    this.givenOver.end();
  }

  /** Something was booked that is no request. */
  credited(organizationId: string, picoUsd: bigint): void {
    this.#options.books.credited(organizationId, picoUsd);
  }

  /** Whether something was charged that Redis was not told of: it must forget balances then. */
  get isCharged(): boolean {
    return [...this.#keys.values()].some(({ isCharged, telling }) => isCharged || telling !== null);
  }

  /** Organizations that Redis must be told of. */
  untoldOrganizations(): ReadonlySet<string> {
    const untold = [...this.#keys.values()].filter(isUntold);
    return new Set(untold.map(({ organizationId }) => organizationId));
  }

  /** What Redis must be told of an organization's keys; the same until `told`. */
  untold(organizationId: string): readonly UntoldUse[] {
    const keys = [...this.#keys.values()].filter((key) => key.organizationId === organizationId && isUntold(key));
    return keys.map((key) => {
      if (key.telling !== null) return key.telling;
      const { keyId, tokensPerMinute, use, ended } = key;
      key.telling = { keyId, tokensPerMinute, ...ended, beganMs: use.windowStartMs, message: randomUUID() };
      key.ended = { requests: 0, tokens: 0 };
      key.isCharged = false;
      return key.telling;
    });
  }

  told(uses: readonly UntoldUse[]): void {
    for (const use of uses) {
      const key = this.#keys.get(use.keyId);
      if (key?.telling === use) key.telling = null;
    }
  }

  #knowsMonth({ month }: LocalKey, limits: KeyLimits): boolean {
    if (limits.monthlyTokenLimit === null) return true;
    return month !== null && month.startMs === monthStartMs(this.#options.store.guessedNowMs);
  }

  async #afterReading(request: AdmitRequest, deciding: Deciding): Promise<AdmitResult> {
    const { books } = this.#options;
    try {
      if (await this.#isRevoked(request)) return { ok: false, code: 'unauthorized' };
      const { organizationId } = request;
      const readParts = (): Promise<readonly BudgetPart[]> =>
        this.#readParts(organizationId, () => budgetsOf(this.#options.budgets, request));
      const [share, key] = await Promise.all([books.read(organizationId), this.#readKey(request), readParts()]);
      const isPoor = refuseByShare(share, request)?.code === 'insufficient_funds';
      if (isPoor && books.mayHaveMore(share)) await books.askMore(organizationId, share);
      const parts = await readParts();
      if (this.#isOver) return await this.#options.again(request, deciding);
      return books.mayServe ? this.#decide(request, { share, key, parts }, deciding) : unavailable;
    } catch {
      return unavailable;
    }
  }

  #readParts(organizationId: string, budgets: () => readonly HardBudget[]): Promise<readonly BudgetPart[]> {
    return askOfCurrent(budgets, (asked) => this.#budgets.read(organizationId, asked));
  }

  /** The books are asked where Redis never said it. */
  async #isRevoked({ organizationId, keyId }: AdmitRequest): Promise<boolean> {
    const { books, known } = this.#options;
    if (known.use(keyId) !== null || this.#keys.has(keyId)) return false;
    return books.isRevoked({ organizationId, keyId });
  }

  async #readKey({ organizationId, keyId, limits }: AdmitRequest): Promise<LocalKey> {
    const { books, known, leases, store } = this.#options;
    const gateways = await books.gateways();
    const word = known.use(keyId) ?? { use: unusedKey(), monthMs: null };
    const startMs = monthStartMs(store.guessedNowMs);
    const isCounted = word.monthMs === startMs;
    const isLimited = limits.monthlyTokenLimit !== null;
    const heard = isCounted ? word.use.monthTokens : null;
    const tokens = isLimited ? await this.#monthTokens({ organizationId, keyId, limits }, startMs, heard) : heard;
    const month = isLimited && tokens !== null ? { startMs, tokens, read: tokens, gateways } : null;
    const made = this.#keys.get(keyId);
    const use = { ...word.use, monthTokens: tokens ?? word.use.monthTokens };
    rollWindow(use, limits, store.guessedNowMs);
    const running = leases.running(keyId);
    const divided = divideUse(use, limits, gateways, running);
    if (made !== undefined) {
      if (!this.#knowsMonth(made, limits)) {
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

  /** Redis may have said it before others used more: the books know of that. */
  async #monthTokens(key: KeyRef, startMs: number, heard: number | null): Promise<number> {
    const late = heard === null ? null : (tokens: number) => this.#usedMore(key.keyId, startMs, tokens);
    const said = await this.#options.books.monthTokens(key, startMs, late);
    return Math.max(heard ?? 0, said ?? 0);
  }

  /** What was used here meanwhile may be in it twice then: the part is too small, never too large. */
  #usedMore(keyId: string, startMs: number, tokens: number): void {
    const key = this.#keys.get(keyId);
    if (key?.month?.startMs !== startMs || tokens <= key.month.read) return;
    const beyond = tokens - key.month.read;
    key.month.read = tokens;
    key.month.tokens += beyond;
    key.use.monthTokens += Math.ceil(beyond / key.month.gateways);
  }

  #decide(request: AdmitRequest, known: Known, { isDry, isUnsure }: Deciding): AdmitResult {
    const { share, key, parts } = known;
    if (this.givenOver.has(request.organizationId)) return unavailable;
    const { organizationId, limits, estimatedTokens, neededMicroUsd, wantedMicroUsd } = request;
    const nowMs = this.#options.store.guessedNowMs;
    const divided = partOfLimits(key, limits, share.gateways, nowMs);
    rollKey(key, divided, nowMs);
    const poor = refuseByShare(share, request) ?? refuseByParts(parts, neededMicroUsd);
    const refused = poor ?? this.#refuse(key, request, divided, nowMs);
    if (refused !== null) return refused;
    const left = leastOf(share.leftMicroUsd, parts.map(leftOfPart));
    const heldMicroUsd = left < wantedMicroUsd ? left : wantedMicroUsd;
    if (isDry) return { ok: true, heldMicroUsd, view: viewOfPart(key, limits, divided, this.#moment(nowMs)) };
    const { use, month } = key;
    countAdmitted(use, nowMs);
    const reservedTokens = reserve(estimatedTokens, divided.tokensPerMinute);
    const monthTokens = reserve(estimatedTokens, limits.monthlyTokenLimit);
    use.tokens += reservedTokens;
    use.monthTokens += monthTokens;
    if (month !== null) month.tokens += monthTokens;
    share.leftMicroUsd -= heldMicroUsd;
    const budgets = parts.map(({ budget }) => budget);
    this.#budgets.changed(organizationId, slotsOf(budgets), heldMicroUsd);
    key.tokensPerMinute = limits.tokensPerMinute;
    this.#holds.set(request.requestId, { windowStartMs: use.windowStartMs, reservedTokens, monthTokens });
    this.#options.leases.add(request, {
      heldMicroUsd,
      reservedTokens: reserve(estimatedTokens, limits.tokensPerMinute),
      beganMs: nowMs,
      standing: isUnsure ? 'unsure' : 'local',
      budgets,
    });
    return { ok: true, heldMicroUsd, view: viewOfPart(key, limits, divided, this.#moment(nowMs)) };
  }

  #refuse(key: LocalKey, request: AdmitRequest, divided: KeyLimits, nowMs: number): AdmitRefusal | null {
    const { limits, estimatedTokens } = request;
    const refused = refuseByLimits(key.use, divided, estimatedTokens, nowMs);
    if (refused === null) return null;
    const { monthlyTokenLimit: most } = limits;
    const all = (key.month?.tokens ?? 0) + reserve(estimatedTokens, most);
    // Only this gateway's part of the month is used up: that ends with the outage, not with the month.
    if (refused.code === 'monthly_quota_exceeded' && most !== null && all <= most) return unavailable;
    const shifted = shiftRefusal(refused, nowMs, this.#options.clock.now());
    return { ok: false, ...shifted, limits: viewOfPart(key, limits, divided, this.#moment(nowMs)) };
  }

  #moment(nowMs: number): { readonly nowMs: number; readonly aheadMs: number } {
    return { nowMs, aheadMs: this.#options.clock.now() - nowMs };
  }

  #giveBack({ organizationId, slots, heldMicroUsd }: OwnHold, { chargedPicoUsd }: Settlement): void {
    const share = this.#options.books.share(organizationId);
    const back = heldMicroUsd - heldFor(chargedPicoUsd);
    if (share !== null) share.leftMicroUsd += back;
    this.#budgets.changed(organizationId, slots, -back);
  }

  /** Puts what was used in the place of what was reserved. */
  #correct(requestId: string, { keyId }: OwnHold, tokens: number): void {
    const key = this.#keys.get(keyId);
    if (key === undefined) return;
    const { use, month } = key;
    const hold = this.#holds.get(requestId);
    use.running = Math.max(0, use.running - 1);
    // Of a request that Redis admitted, what it has reserved is in what Redis said last.
    if (hold === undefined) return;
    const beyond = tokens - hold.reservedTokens;
    if (key.tokensPerMinute !== null && (beyond > 0 || use.windowStartMs === hold.windowStartMs)) {
      use.tokens = Math.max(0, use.tokens + beyond);
    }
    use.monthTokens += tokens - hold.monthTokens;
    if (month !== null) month.tokens += tokens - hold.monthTokens;
  }
}

/** Whether the wallet is empty for all that is known, or only this gateway's part of it. */
function refuseByShare(share: Share, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  const { balancePicoUsd, leftMicroUsd } = share;
  if (balancePicoUsd > 0n && leftMicroUsd >= neededMicroUsd && leftMicroUsd >= 0n) return null;
  const availableMicroUsd = share.availableMicroUsd - (share.givenMicroUsd - leftMicroUsd);
  if (balancePicoUsd > 0n && availableMicroUsd >= neededMicroUsd && share.gateways > 1) return unavailable;
  const heldMicroUsd = balancePicoUsd / PICO_PER_MICRO - availableMicroUsd;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}

const slotsOf = (budgets: readonly HardBudget[]): readonly string[] => budgets.map(({ slot }) => slot);
