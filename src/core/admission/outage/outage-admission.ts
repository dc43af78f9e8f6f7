import { randomUUID } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import {
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  askOfCurrent,
  budgetsOf,
  type Extension,
  type HardBudget,
  type HardBudgets,
  heldFor,
  leastOf,
  type ModelMove,
  projectLimitOf,
  type ProjectLimits,
  refusalOf,
  type Settlement,
  type Wanted,
} from '#core/admission/contract/contract.ts';
import {
  type AdmissionStore,
  type HoldLeases,
  type LastKnown,
  type OwnHold,
  ownModel,
  type Standing,
  type UnregisteredUse,
} from '#core/admission/redis/redis.ts';
import {
  countAdmitted,
  type KeyLimits,
  type LimitsView,
  nextMonthMs,
  refuseByLimits,
  reserve,
  shiftRefusal,
  tighterView,
} from '#core/limits/limits.ts';
import { Handovers } from './handover.ts';
import { type OutageAccounts, refuseByShare, type Share } from './accounts.ts';
import { type BudgetPart, lacksHold, leftOfPart, OutageBudgets, refuseByParts, slotsOf } from './budgets.ts';
import { isUnregistered, type LocalKey, OutageKeys, partOfLimits, rollKey, viewOfPart } from './keys.ts';
import { type ModelPart, onlyOfPart, OutageModels } from './models.ts';

export interface OutageOptions {
  readonly store: AdmissionStore;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  readonly books: OutageAccounts;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  /** Decides a request that was waiting when the outage ended. */
  readonly again: (request: AdmitRequest, deciding: Deciding) => AdmitResult | Promise<AdmitResult>;
  readonly leaseMs: number;
  readonly clock: Clock;
}

/** Options of a decision. */
export interface Deciding {
  readonly isDry: boolean;
  /** True if Redis was asked and its answer is unknown. */
  readonly isUnsure: boolean;
}

/** Values that a decision about a request needs. */
interface Known {
  readonly share: Share;
  readonly key: LocalKey;
  readonly parts: readonly BudgetPart[];
  /** Null if the project has no limits for the model. */
  readonly model: ModelPart | null;
}

interface LocalHold {
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  readonly monthTokens: number;
}

const admittedHere: ReadonlySet<Standing> = new Set(['local', 'unsure']);
const unavailable: AdmitRefusal = { ok: false, code: 'billing_unavailable' };

/**
 * Admission while Redis is unavailable, in this process's memory. No gateway knows what the others admit meanwhile, so
 * each gives only its own part: limits and their remainders are divided among the live gateways, at least one of each,
 * and so is the available amount of a wallet at its first request. Requests that already run here are included.
 *
 * A part is given once, until Redis reports again what is left. If parts were divided again, in this outage or in one
 * that follows soon, the gateways would spend more than there is. So requests that end between two outages are counted
 * here as well.
 */
export class Outage {
  readonly #options: OutageOptions;
  readonly #keys: OutageKeys;
  readonly models: OutageModels;
  readonly #holds: Map<string, LocalHold>;
  readonly givenOver: Handovers;
  readonly #budgets: OutageBudgets;
  #isOver = false;

  /** @param before previous outage, whose parts continue */
  constructor(options: OutageOptions, before: Outage | null) {
    this.#options = options;
    this.givenOver = new Handovers(options);
    this.#keys = new OutageKeys(options, before === null ? null : before.#keys);
    this.#budgets = new OutageBudgets(options, before === null ? null : before.#budgets);
    this.models = new OutageModels(options, before?.models ?? null);
    this.#holds = before === null ? new Map<string, LocalHold>() : before.#holds;
  }

  admit(request: AdmitRequest, deciding: Deciding): AdmitResult | Promise<AdmitResult> {
    const { books, known } = this.#options;
    if (known.isRevoked(request.keyId)) return { ok: false, code: 'unauthorized' };
    if (this.givenOver.has(request.organizationId)) return this.#inItsTurn(request, deciding);
    const share = books.share(request.organizationId);
    const key = this.#keys.get(request.keyId);
    const parts = this.#budgets.current(request.organizationId, budgetsOf(this.#options.budgets, request));
    const model = this.models.current(projectLimitOf(this.#options.projectLimits, request));
    const isKey = key !== undefined && this.#keys.knowsMonth(key, request.limits);
    if (share === null || !isKey || parts === null || model === undefined) return this.#afterReading(request, deciding);
    if (!books.mayServe) return unavailable;
    const result = this.#decide(request, { share, key, parts, model }, deciding);
    const isPoor = !result.ok && result.code === 'insufficient_funds';
    return isPoor && books.mayHaveMore(share) ? this.#afterReading(request, deciding) : result;
  }

  /**
   * Adds as much of the wanted amount to a hold as this gateway may give. If nothing is added, the wallet may still
   * have more.
   */
  async extend(requestId: string, hold: OwnHold, { moreMicroUsd, leastMicroUsd }: Wanted): Promise<Extension> {
    const { books, budgets, leases } = this.#options;
    try {
      const share = await books.read(hold.organizationId);
      const parts = await this.#readParts(hold.organizationId, () =>
        budgetsOf(budgets, { ...hold, requestId, model: hold.modelId }).filter(({ slot }) => hold.slots.includes(slot)),
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

  /**
   * Counts a request against the budgets and limits of another model. A request that Redis admitted before the outage
   * keeps counting in Redis against the limits of its admission.
   */
  async move(requestId: string, hold: OwnHold, { model, estimatedTokens, isForced }: ModelMove): Promise<boolean> {
    const { projectLimits, budgets, clock } = this.#options;
    const { spender, organizationId } = hold;
    if (spender === undefined) return false;
    try {
      const parts = await this.#readParts(organizationId, () => budgetsOf(budgets, { requestId, spender, model }));
      const part = await this.models.read(organizationId, () => projectLimitOf(projectLimits, { spender, model }));
      if (this.#isOver || hold.isSettled || this.givenOver.has(organizationId)) return false;
      const isRefused = this.models.refusesMove(requestId, part, estimatedTokens, clock.now());
      if (!isForced && (isRefused || lacksHold(parts, hold))) return false;
      this.#moveBudgets(hold, parts, model);
      if (!this.models.move(requestId, part, estimatedTokens)) return true;
      // Redis most likely does not have an unsure request: it is reported to Redis like one that was admitted here.
      if (admittedHere.has(hold.standing)) hold.model = ownModel(part?.limit ?? null, estimatedTokens);
      return true;
    } catch {
      return false;
    }
  }

  #moveBudgets(hold: OwnHold, parts: readonly BudgetPart[], model: string): void {
    const slots = slotsOf(parts);
    this.rebound(hold, slots);
    this.#options.leases.changeSlots(hold, slots);
    hold.modelId = model;
  }

  /** Applies the shrunk hold of a request that was spooled. @param before the hold as it was */
  spooled(requestId: string, before: OwnHold, used: Settlement): void {
    this.#changed(before, heldFor(used.chargedPicoUsd) - before.heldMicroUsd, 0n);
    this.#correct(requestId, before, used.tokens);
  }

  /** Applies a settlement. @param hold the hold as it was at the settlement */
  settled(requestId: string, hold: OwnHold, used: Settlement): void {
    this.#changed(hold, -hold.heldMicroUsd, used.chargedPicoUsd);
    if (!hold.isSpooled) this.#correct(requestId, hold, used.tokens);
    this.models.settled(requestId, hold.standing === 'local', used);
    const key = this.#keys.find(hold.keyId);
    const local = this.#holds.get(requestId);
    this.#holds.delete(requestId);
    if (key === undefined || hold.standing !== 'local') return;
    if (used.chargedPicoUsd > 0n) key.isCharged = true;
    if (local === undefined || local.windowStartMs !== key.use.windowStartMs) return;
    key.ended.requests += 1;
    if (key.tokensPerMinute !== null) key.ended.tokens += used.tokens;
  }

  /** Applies an amount that Redis has added to a hold. */
  raised(hold: OwnHold, moreMicroUsd: bigint): void {
    this.#changed(hold, moreMicroUsd, 0n);
  }

  /** Moves a hold to other budgets. @param hold the hold before it moves */
  rebound(hold: OwnHold, slots: readonly string[]): void {
    this.#budgets.rebound(hold, slots);
  }

  /** Counts a request that Redis had admitted before the outage. */
  admittedByRedis(request: AdmitRequest, heldMicroUsd: bigint): void {
    const { organizationId, keyId } = request;
    const hold = this.#options.leases.find(request.requestId);
    this.#options.books.changed(organizationId, heldMicroUsd, 0n);
    this.#budgets.changed(organizationId, hold?.slots ?? [], heldMicroUsd);
    if (hold !== undefined) this.models.admittedByRedis(hold);
    const key = this.#keys.find(keyId);
    if (key !== undefined) countAdmitted(key.use, this.#options.store.guessedNowMs);
  }

  async #inItsTurn(request: AdmitRequest, deciding: Deciding): Promise<AdmitResult> {
    await this.givenOver.untilHandedBack(request.organizationId);
    if (this.#isOver) return this.#options.again(request, deciding);
    return this.givenOver.has(request.organizationId) ? unavailable : this.admit(request, deciding);
  }

  /** Ends the outage: Redis decides again, and nothing more is decided here. */
  end(): void {
    this.#isOver = true;
    this.givenOver.end();
  }

  get books(): OutageAccounts {
    return this.#options.books;
  }

  /** Applies a credit or adjustment. */
  credited(organizationId: string, picoUsd: bigint): void {
    this.#options.books.credited(organizationId, picoUsd);
  }

  /** True if a charge was made that Redis does not have. Redis must forget balances then. */
  get isCharged(): boolean {
    return this.#keys.all().some(({ isCharged, registering }) => isCharged || registering !== null);
  }

  /** Returns the organizations with ended use that Redis does not have. */
  unregisteredOrganizations(): ReadonlySet<string> {
    const unregistered = this.#keys.all().filter(isUnregistered);
    return new Set([
      ...unregistered.map(({ organizationId }) => organizationId),
      ...this.models.unregisteredOrganizations(),
    ]);
  }

  /**
   * Returns the ended use of an organization's keys that Redis does not have; the same objects until `markRegistered`.
   */
  unregistered(organizationId: string): readonly UnregisteredUse[] {
    const keys = this.#keys.all().filter((key) => key.organizationId === organizationId && isUnregistered(key));
    return keys.map((key) => {
      if (key.registering !== null) return key.registering;
      const { keyId, tokensPerMinute, use, ended } = key;
      key.registering = { keyId, tokensPerMinute, ...ended, beganMs: use.windowStartMs, message: randomUUID() };
      key.ended = { requests: 0, tokens: 0 };
      key.isCharged = false;
      return key.registering;
    });
  }

  markRegistered(uses: readonly UnregisteredUse[]): void {
    for (const use of uses) {
      const key = this.#keys.get(use.keyId);
      if (key?.registering === use) key.registering = null;
    }
  }

  async #afterReading(request: AdmitRequest, deciding: Deciding): Promise<AdmitResult> {
    const { books } = this.#options;
    try {
      if (await this.#isRevoked(request)) return { ok: false, code: 'unauthorized' };
      const { organizationId } = request;
      const readParts = (): Promise<readonly BudgetPart[]> =>
        this.#readParts(organizationId, () => budgetsOf(this.#options.budgets, request));
      const readModel = (): Promise<ModelPart | null> =>
        this.models.read(organizationId, () => projectLimitOf(this.#options.projectLimits, request));
      const reading = [readParts(), readModel()] as const;
      const [share, key] = await Promise.all([books.read(organizationId), this.#keys.read(request), ...reading]);
      const isPoor = refuseByShare(share, request)?.code === 'insufficient_funds';
      if (isPoor && books.mayHaveMore(share)) await books.askMore(organizationId, share);
      const parts = await readParts();
      const model = await readModel();
      if (this.#isOver) return await this.#options.again(request, deciding);
      return books.mayServe ? this.#decide(request, { share, key, parts, model }, deciding) : unavailable;
    } catch {
      return unavailable;
    }
  }

  #readParts(organizationId: string, budgets: () => readonly HardBudget[]): Promise<readonly BudgetPart[]> {
    return askOfCurrent(budgets, (asked) => this.#budgets.read(organizationId, asked));
  }

  /** Asks the database whether the key is revoked, if Redis never gave an answer about the key. */
  async #isRevoked({ organizationId, keyId }: AdmitRequest): Promise<boolean> {
    const { books, known } = this.#options;
    if (known.use(keyId) !== null || this.#keys.get(keyId) !== undefined) return false;
    return books.isRevoked({ organizationId, keyId });
  }

  #decide(request: AdmitRequest, known: Known, { isDry, isUnsure }: Deciding): AdmitResult {
    const { share, key, parts, model } = known;
    if (this.givenOver.has(request.organizationId)) return unavailable;
    const { organizationId, limits, estimatedTokens, neededMicroUsd, wantedMicroUsd } = request;
    const nowMs = this.#options.store.guessedNowMs;
    const divided = partOfLimits(key, limits, share.gateways, nowMs);
    rollKey(key, divided, nowMs);
    const poor = refuseByShare(share, request) ?? refuseByParts(parts, neededMicroUsd);
    const refused = poor ?? this.#refuse(known, request, divided, nowMs);
    if (refused !== null) return refused;
    const left = leastOf(share.leftMicroUsd, parts.map(leftOfPart));
    const heldMicroUsd = wantedMicroUsd === 0n || left >= wantedMicroUsd ? wantedMicroUsd : left;
    if (isDry) return { ok: true, heldMicroUsd, view: this.#viewOf(known, limits, divided, nowMs) };
    const { use, month } = key;
    countAdmitted(use, nowMs);
    const reservedTokens = reserve(estimatedTokens, divided.tokensPerMinute);
    const monthTokens = reserve(estimatedTokens, limits.monthlyTokenLimit);
    use.tokens += reservedTokens;
    use.monthTokens += monthTokens;
    if (month !== null) month.tokens += monthTokens;
    share.leftMicroUsd -= heldMicroUsd;
    const budgets = parts.map(({ budget }) => budget);
    this.#budgets.changed(organizationId, slotsOf(parts), heldMicroUsd);
    key.tokensPerMinute = limits.tokensPerMinute;
    if (model !== null) this.models.take(request.requestId, model, estimatedTokens);
    this.#holds.set(request.requestId, { windowStartMs: use.windowStartMs, reservedTokens, monthTokens });
    this.#options.leases.add(request, {
      heldMicroUsd,
      reservedTokens: reserve(estimatedTokens, limits.tokensPerMinute),
      beganMs: nowMs,
      standing: isUnsure ? 'unsure' : 'local',
      budgets,
      limit: model?.limit ?? null,
    });
    return { ok: true, heldMicroUsd, view: this.#viewOf(known, limits, divided, nowMs) };
  }

  #refuse(known: Known, request: AdmitRequest, divided: KeyLimits, nowMs: number): AdmitRefusal | null {
    const { key, model } = known;
    const { limits, estimatedTokens } = request;
    const hereMs = this.#options.clock.now();
    const aheadMs = hereMs - nowMs;
    const monthEndMs = nextMonthMs(key.month?.startMs ?? hereMs) - aheadMs;
    const ofKey = refuseByLimits(key.use, divided, estimatedTokens, { nowMs, monthEndMs });
    const ofProject = model === null ? null : this.models.refuse(model, estimatedTokens, hereMs);
    if (ofKey === null && ofProject === null) return null;
    const { monthlyTokenLimit: most } = limits;
    const all = (key.month?.tokens ?? 0) + reserve(estimatedTokens, most);
    // Only this gateway's part of the month is used up: that ends with the outage, not with the month.
    if (ofKey?.code === 'monthly_quota_exceeded' && most !== null && all <= most) return unavailable;
    if (ofProject === onlyOfPart) return unavailable;
    const shifted = ofKey === null ? null : shiftRefusal(ofKey, aheadMs);
    return refusalOf(shifted, ofProject, this.#viewOf(known, limits, divided, nowMs));
  }

  #viewOf({ key, model }: Known, limits: KeyLimits, divided: KeyLimits, nowMs: number): LimitsView {
    const hereMs = this.#options.clock.now();
    const view = viewOfPart(key, limits, divided, { nowMs, aheadMs: hereMs - nowMs });
    return model === null ? view : tighterView(view, this.models.view(model, hereMs));
  }

  #changed({ organizationId, slots }: OwnHold, deltaMicroUsd: bigint, chargedPicoUsd: bigint): void {
    this.#options.books.changed(organizationId, deltaMicroUsd, chargedPicoUsd);
    this.#budgets.changed(organizationId, slots, deltaMicroUsd + heldFor(chargedPicoUsd));
  }

  /** Replaces reserved tokens with used ones. */
  #correct(requestId: string, { keyId }: OwnHold, tokens: number): void {
    this.models.correct(requestId, tokens);
    const key = this.#keys.find(keyId);
    if (key === undefined) return;
    const { use, month } = key;
    const hold = this.#holds.get(requestId);
    use.running = Math.max(0, use.running - 1);
    // If Redis admitted the request, Redis' last answer includes its reservation.
    if (hold === undefined) return;
    const beyond = tokens - hold.reservedTokens;
    if (key.tokensPerMinute !== null && (beyond > 0 || use.windowStartMs === hold.windowStartMs)) {
      use.tokens = Math.max(0, use.tokens + beyond);
    }
    use.monthTokens += tokens - hold.monthTokens;
    if (month !== null) month.tokens += tokens - hold.monthTokens;
  }
}
