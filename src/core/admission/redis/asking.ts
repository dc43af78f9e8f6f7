import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { RedisAwayError } from '#base/redis/redis.ts';
import {
  type AdmitRequest,
  type AdmitResult,
  type LedgerHealth,
  budgetsOf,
  GatewaysSilentError,
  type HardBudget,
  type HardBudgets,
  modelRefusal,
  type ProjectLimit,
  projectLimitOf,
  type ProjectLimits,
  refusalOf,
} from '#core/admission/contract/contract.ts';
import {
  dayStartMs,
  monthStartMs,
  nextMonthMs,
  refuseByLimits,
  refuseByModel,
  tighterView,
  viewLimits,
  viewModel,
} from '#core/limits/limits.ts';
import type { AdmissionStore, Reply } from './admission-store.ts';
import { AdmitBatcher, type Asked } from './admit-batcher.ts';
import type { HoldLeases } from './hold-leases.ts';
import { type LastKnown, readModelUse, readUse } from './last-known.ts';
import type { RedisBooks } from './books.ts';

export interface RedisAskingOptions {
  readonly store: AdmissionStore;
  readonly books: RedisBooks;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  readonly watch: LedgerHealth;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  readonly gatewayId: string;
  readonly leaseMs: number;
  /** Decides instead of Redis. @param isUnsure true if Redis may have admitted the request */
  readonly instead: (request: AdmitRequest, isDry: boolean, isUnsure: boolean) => AdmitResult | Promise<AdmitResult>;
  /** Called with each admission by Redis. */
  readonly onAdmitted: (request: AdmitRequest, heldMicroUsd: bigint) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** An admission that waits for Redis' reply. */
interface Asking extends Asked {
  readonly attempt: number;
  readonly resolve: (result: AdmitResult | Promise<AdmitResult>) => void;
}

const attemptsMax = 20;
/** Words of a reply that name what Redis must be given first. */
const knowsNot: ReadonlySet<string> = new Set(['wallet', 'budget', 'month', 'day', 'key', 'clock']);
const unavailable: AdmitResult = { ok: false, code: 'billing_unavailable' };

/** Asks Redis to decide, and first gives it the values that it does not have. */
export class RedisAsking {
  readonly #options: RedisAskingOptions;
  readonly #batcher: AdmitBatcher<Asking>;

  constructor(options: RedisAskingOptions) {
    this.#options = options;
    const { leases, known } = options;
    this.#batcher = new AdmitBatcher<Asking>({
      ...options,
      beforeAsking: () => leases.settlements.flush(),
      onReply: (asking, reply) => this.#onReply(asking, reply),
      onWallet: (organizationId, word, heardMs) =>
        known.recordWallet(organizationId, { reply: word, ownMicroUsd: leases.heldMicroUsd(organizationId), heardMs }),
      onFailure: (asking, error) => this.#fail(asking, error),
    });
  }

  ask(request: AdmitRequest, isDry: boolean): Promise<AdmitResult> {
    const monthMs = monthStartMs(this.#options.store.guessedNowMs);
    const { isUnavailable, isWorthATry, mayServeKnown } = this.#options.watch;
    const takesOld = isUnavailable && !isWorthATry && mayServeKnown;
    const bounds = this.#boundsOf(request);
    return new Promise((resolve) =>
      this.#batcher.ask({ request, ...bounds, isDry, monthMs, takesOld, attempt: 1, resolve }),
    );
  }

  /** Returns the limits of a request besides wallet and key. */
  #boundsOf(request: AdmitRequest): Pick<Asking, 'budgets' | 'limit'> {
    const { budgets, projectLimits } = this.#options;
    return { budgets: budgetsOf(budgets, request), limit: projectLimitOf(projectLimits, request) };
  }

  #onReply(asking: Asking, reply: Reply): void {
    try {
      if (knowsNot.has(reply.word)) void this.#learn(asking, reply);
      else asking.resolve(this.#resultOf(asking, reply));
    } catch (error) {
      this.#fail(asking, error);
    }
  }

  #fail({ request, isDry, resolve }: Asking, error: unknown): void {
    if (error instanceof RedisAwayError) return resolve(this.#options.instead(request, isDry, error.uncertain));
    const isExpected = error instanceof GatewaysSilentError;
    if (!isExpected)
      this.#options.log.warn(
        { err: error },
        'a request got 503 billing_unavailable: its limits, wallet and budgets could not be checked',
      );
    resolve(unavailable);
  }

  /** Reads the values that Redis does not have, and asks again. */
  async #learn(asking: Asking, { word, nowMs }: Reply): Promise<void> {
    const { request, limit, monthMs, attempt } = asking;
    const { books } = this.#options;
    try {
      if (attempt === attemptsMax)
        throw new Error('Redis lost the values for an admission faster than they could be read');
      const again = (): Asking => ({ ...asking, ...this.#boundsOf(request), attempt: attempt + 1 });
      if (word === 'wallet' || word === 'budget') {
        const takesOld = await this.#readMoney(asking, word);
        this.#batcher.ask({ ...again(), takesOld });
      } else if (word === 'clock') this.#batcher.ask({ ...again(), monthMs: monthStartMs(nowMs) });
      else {
        if (word === 'month') await books.loadMonth(request, monthMs);
        else if (word === 'day') await books.loadDay(request.organizationId, limit);
        else await books.loadKey(request);
        this.#batcher.ask(again());
      }
    } catch (error) {
      // The last call to Redis was no admission: nothing of this request is on its way.
      this.#fail(asking, error instanceof RedisAwayError ? new RedisAwayError(error.message, false, error) : error);
    }
  }

  /**
   * Reads the balance or the budgets from the database. Old values may be used if the database does not answer; lost
   * ones cannot.
   * @returns true if old values are accepted now
   */
  async #readMoney({ request, budgets, takesOld }: Asking, word: 'wallet' | 'budget'): Promise<boolean> {
    const { books, watch } = this.#options;
    const { organizationId } = request;
    const reading = word === 'wallet' ? books.loadWallet(organizationId) : books.loadBudgets(organizationId, budgets);
    if (takesOld || !watch.mayServeKnown) {
      await reading;
      return false;
    }
    await watch.orKnown(reading);
    return true;
  }

  #resultOf(asking: Asking, reply: Reply): AdmitResult {
    const { request, budgets, monthMs } = asking;
    const { known } = this.#options;
    const { limits, keyId } = request;
    if (reply.word === 'revoked') {
      known.revoked(keyId);
      return { ok: false, code: 'unauthorized' };
    }
    if (reply.word === 'insufficient_funds') {
      const [micro = '0', pico = '0', held = '0'] = reply.rest;
      const balancePicoUsd = BigInt(micro) * PICO_PER_MICRO + BigInt(pico);
      return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd: BigInt(held) };
    }
    if (reply.word === 'budget_exceeded') return exceededOf(budgets, reply);
    known.recordUse(keyId, reply.rest, limits.monthlyTokenLimit === null ? null : monthMs);
    return this.#resultOfUse(asking, reply);
  }

  /** Returns the result of a reply with the key's use: the request is admitted, or a limit rejects it. */
  #resultOfUse(asking: Asking, reply: Reply): AdmitResult {
    const { request, budgets, isDry, limit, monthMs } = asking;
    const { leases, clock, onAdmitted } = this.#options;
    const { limits } = request;
    const nowMs = clock.now();
    const use = readUse(reply.rest, nowMs - reply.nowMs);
    const ofModel = limit === null ? null : this.#hearModel(limit, asking, reply);
    const ofKey = viewLimits(use, limits, nowMs);
    const view = ofModel === null ? ofKey : tighterView(ofKey, ofModel.view);
    if (reply.word === 'ok') {
      const heldMicroUsd = BigInt(reply.rest[5] ?? '0');
      if (!isDry) {
        const reservedTokens = Number(reply.rest[6] ?? '0');
        leases.add(request, {
          heldMicroUsd,
          reservedTokens,
          beganMs: reply.nowMs,
          standing: 'registered',
          budgets,
          limit,
        });
        if (budgets.length > 0) this.#hearBudgets(asking, reply.rest);
        onAdmitted(request, heldMicroUsd);
      }
      return { ok: true, heldMicroUsd, view };
    }
    // The script decides, and the limits' rules compute how long to wait: both are the same rules.
    const moment = { nowMs, monthEndMs: nextMonthMs(monthMs) };
    const refused = refuseByLimits(use, limits, request.estimatedTokens, moment);
    const isKnown = reply.word === 'project_limit_exceeded' ? ofModel?.refusal : refused?.code === reply.word;
    if (!isKnown) throw new Error(`the rules of limits do not explain the rejection ${reply.word}`);
    return refusalOf(refused, ofModel?.refusal ?? null, view);
  }

  /** Reads the use of a model, which comes last in a reply. Returns its view, and the refusal if a limit rejects. */
  #hearModel(limit: ProjectLimit, { request, budgets, isDry }: Asking, { word, rest, nowMs: heardMs }: Reply) {
    const before = word === 'ok' ? 7 + (isDry ? 0 : 2 * budgets.length) : 5;
    const words = rest.slice(before);
    this.#options.known.recordModel(limit.slot, words, heardMs);
    const hereMs = this.#options.clock.now();
    const use = readModelUse(words, dayStartMs(heardMs), 0);
    const moment = { nowMs: heardMs, hereMs };
    const refused = word === 'ok' ? null : refuseByModel(use, limit.limits, request.estimatedTokens, moment);
    return { view: viewModel(use, limit.limits, moment), refusal: modelRefusal(limit, refused) };
  }

  /** Stores Redis' answer about spending for use in an outage. */
  #hearBudgets({ request: { organizationId }, budgets }: Asking, words: readonly string[]): void {
    const { known, leases } = this.#options;
    for (const [index, { slot }] of budgets.entries()) {
      const [micro = '0', held = '0'] = words.slice(7 + 2 * index, 9 + 2 * index);
      const othersMicroUsd = BigInt(held) - leases.heldOfSlot(organizationId, slot);
      known.recordBudget(organizationId, slot, { spentMicroUsd: -BigInt(micro), othersMicroUsd });
    }
  }
}

function exceededOf(budgets: readonly HardBudget[], { rest }: Reply): AdmitResult {
  const [slot, micro = '0', held = '0'] = rest;
  const budget = budgets.find((one) => one.slot === slot);
  if (budget === undefined) throw new Error('a budget rejected a request that does not belong to it');
  const spentPicoUsd = -BigInt(micro) * PICO_PER_MICRO;
  return { ok: false, code: 'budget_exceeded', budget, spentPicoUsd, heldMicroUsd: BigInt(held) };
}
