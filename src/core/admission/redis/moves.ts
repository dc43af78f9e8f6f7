import {
  budgetsOf,
  type HardBudget,
  type HardBudgets,
  type ModelMove,
  type ProjectLimit,
  projectLimitOf,
  type ProjectLimits,
} from '#core/admission/contract/contract.ts';
import type { AdmissionStore } from './admission-store.ts';
import { projectLimitText } from './admit-batcher.ts';
import type { RedisBooks } from './books.ts';
import { moveBudgetsScript } from './budget-scripts.ts';
import type { HoldLeases } from './hold-leases.ts';
import { moveScript } from './model-scripts.ts';
import { type OwnHold, ownModel } from './own-hold.ts';

export interface RedisMovesOptions {
  readonly store: AdmissionStore;
  readonly leases: HoldLeases;
  readonly books: RedisBooks;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  /** Called before a hold moves to these slots. */
  readonly onBudgets: (hold: OwnHold, slots: readonly string[]) => void;
}

const attemptsMax = 20;

/** Moves requests in Redis to the budgets and limits of another model. */
export class RedisMoves {
  readonly #options: RedisMovesOptions;

  constructor(options: RedisMovesOptions) {
    this.#options = options;
  }

  /** True if the model has no limits, and the same budgets as the request counts against. */
  isSame(requestId: string, hold: OwnHold, move: ModelMove): boolean {
    return this.#limitOf(hold, move) === null && !this.#changesBudgets(requestId, hold, move);
  }

  /**
   * Moves a request to the budgets of a model, then to its limits. If the limits reject it, it moves back.
   * @throws RedisAwayError, and errors of the database if Redis needs values from it first
   */
  async move(requestId: string, hold: OwnHold, move: ModelMove): Promise<boolean> {
    const before = hold.modelId ?? '';
    if (!(await this.#moveBudgets(requestId, hold, move))) return false;
    if (await this.#moveLimits(requestId, hold, move)) return true;
    await this.#moveBudgets(requestId, hold, { ...move, model: before, isForced: true });
    return false;
  }

  #limitOf({ spender }: OwnHold, { model }: ModelMove): ProjectLimit | null {
    return spender === undefined ? null : projectLimitOf(this.#options.projectLimits, { spender, model });
  }

  #budgetsOf(requestId: string, { spender }: OwnHold, { model }: ModelMove): readonly HardBudget[] {
    return budgetsOf(this.#options.budgets, { requestId, spender, model });
  }

  #changesBudgets(requestId: string, hold: OwnHold, move: ModelMove): boolean {
    const budgets = this.#budgetsOf(requestId, hold, move);
    return budgets.length !== hold.slots.length || budgets.some(({ slot }) => !hold.slots.includes(slot));
  }

  async #moveBudgets(requestId: string, hold: OwnHold, move: ModelMove): Promise<boolean> {
    const { store, leases, books, onBudgets } = this.#options;
    const { organizationId } = hold;
    const { holds, money, budgets: spent, loading } = store.organization(organizationId);
    leases.settlements.flush();
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      if (!this.#changesBudgets(requestId, hold, move)) {
        hold.modelId = move.model;
        return true;
      }
      const budgets = this.#budgetsOf(requestId, hold, move);
      const limits = budgets.flatMap(({ slot, amountMicroUsd }) => [slot, amountMicroUsd.toString()]);
      const args = [requestId, move.isForced ? '1' : '0', ...limits];
      const { word } = await store.run(moveBudgetsScript, [holds, money, spent, loading], args, 'short');
      if (hold.isSettled || word === 'refused') return false;
      if (word === 'budget') await books.loadBudgets(organizationId, budgets);
      else if (word === 'gone') await leases.register(organizationId);
      else {
        const slots = budgets.map(({ slot }) => slot);
        onBudgets(hold, slots);
        leases.changeSlots(hold, slots);
        hold.modelId = move.model;
        return true;
      }
    }
    throw new Error('Redis lost the values for moving a request faster than they could be read');
  }

  async #moveLimits(requestId: string, hold: OwnHold, move: ModelMove): Promise<boolean> {
    const { store, leases, books } = this.#options;
    const { organizationId } = hold;
    const { holds, money, models, days } = store.organization(organizationId);
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const limit = this.#limitOf(hold, move);
      if (limit === null && hold.model === null) return true;
      const args = [requestId, projectLimitText(limit), String(move.estimatedTokens), move.isForced ? '1' : '0'];
      const { word, rest } = await store.run(moveScript, [holds, money, models, days], args, 'short');
      if (hold.isSettled || word === 'refused') return false;
      if (word === 'day') await books.loadDay(organizationId, limit);
      else if (word === 'gone') await leases.register(organizationId);
      else {
        if (rest[0] !== 'there') hold.model = ownModel(limit, move.estimatedTokens);
        return true;
      }
    }
    throw new Error('Redis lost the values for moving a request faster than they could be read');
  }
}
