import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import {
  type AdmitRefusal,
  type LedgerHealth,
  type HardBudget,
  leastOf,
  type LoadSpent,
  type Spending,
} from '#core/admission/contract/contract.ts';

/** Amount spent in one period, and held for running requests. */
interface Slot {
  readonly organizationId: string;
  readonly spending: Spending;
  /** Null until the database has returned it. */
  spentPicoUsd: bigint | null;
  heldMicroUsd: bigint;
  /** Time when the database returned it, on the monotonic clock. */
  loadedMs: number;
  /** Counts settlements. Spending that is read while one happens may or may not include it. */
  changes: number;
}

/** A slot that a request counts against. */
export interface CountedSlot {
  readonly slot: Slot;
  /** True if the spending last read from the database includes its charge. */
  isCounted: boolean;
}

/** A budget with its known spending. */
export interface Bound {
  readonly budget: HardBudget;
  readonly slot: Slot;
}

export interface MemoryBudgetsOptions {
  readonly loadSpent: LoadSpent;
  /** Requests that run here and count against a slot. */
  readonly holdsOf: (slot: Slot) => ReadonlyMap<string, CountedSlot>;
  readonly books: LedgerHealth;
  readonly clock: Clock;
}

/** Milliseconds after which spending is read again, so that charges made outside this process show up. */
const goodForMs = 30_000;
const slotsKeptMax = 10_000;

const noBounds: readonly Bound[] = Object.freeze([]);

/** Returns the micro-dollars that a budget may still hold; below zero after its amount was lowered. */
export const leftOf = ({ budget, slot }: Bound): bigint =>
  budget.amountMicroUsd - spentMicroUsd(slot) - slot.heldMicroUsd;

/** Returns the spending rounded up, so that the remainder is never too large. */
const spentMicroUsd = ({ spentPicoUsd }: Slot): bigint => ((spentPicoUsd ?? 0n) + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;

/** Returns the least that wallet and budgets have left; below zero only if the wallet is. */
export const leastLeft = (availableMicroUsd: bigint, bounds: readonly Bound[]): bigint =>
  bounds.length === 0 ? availableMicroUsd : leastOf(availableMicroUsd, bounds.map(leftOf));

/** Rejects by the first budget that cannot pay `neededMicroUsd`. A free request exceeds no budget. */
export function refuseByBudgets(bounds: readonly Bound[], neededMicroUsd: bigint): AdmitRefusal | null {
  if (neededMicroUsd <= 0n) return null;
  const bound = bounds.find((one) => leftOf(one) < neededMicroUsd);
  if (bound === undefined) return null;
  const { budget, slot } = bound;
  const { spentPicoUsd, heldMicroUsd } = slot;
  return { ok: false, code: 'budget_exceeded', budget, spentPicoUsd: spentPicoUsd ?? 0n, heldMicroUsd };
}

/** Returns the first budget with nothing left. */
export const exhaustedOf = (bounds: readonly Bound[]): HardBudget | null =>
  bounds.find((bound) => leftOf(bound) <= 0n)?.budget ?? null;

/**
 * Spending of periods with budgets, in this process's memory. It follows each charge of this process, as balances do.
 */
export class MemoryBudgets {
  readonly #options: MemoryBudgetsOptions;
  readonly #slots = new Map<string, Slot>();
  readonly #loading = new Map<Slot, Promise<void>>();

  constructor(options: MemoryBudgetsOptions) {
    this.#options = options;
  }

  find(organizationId: string, slot: string): Slot | undefined {
    return this.#slots.get(`${organizationId} ${slot}`);
  }

  /** Returns the budgets with their spending; null if the database must be asked first. */
  current(organizationId: string, budgets: readonly HardBudget[]): readonly Bound[] | null {
    if (budgets.length === 0) return noBounds;
    const bounds = this.#boundsOf(organizationId, budgets);
    return bounds.every(({ slot }) => this.#mayServe(slot)) ? bounds : null;
  }

  /** Reads the spending of budgets. @throws errors of the database if no known value may be used instead */
  async read(organizationId: string, budgets: readonly HardBudget[]): Promise<readonly Bound[]> {
    const bounds = this.#boundsOf(organizationId, budgets);
    await Promise.all(bounds.map(({ slot }) => this.#readSlot(slot)));
    return bounds;
  }

  /**
   * Forgets the spending of budgets that were charged for a request that they did not count: the database is asked
   * again.
   */
  forget(organizationId: string, budgets: readonly HardBudget[]): void {
    for (const { slot } of budgets) {
      const known = this.find(organizationId, slot);
      if (known === undefined) continue;
      known.changes += 1;
      known.spentPicoUsd = null;
    }
  }

  /** Has the spending of all periods read again. */
  forgetAll(): void {
    for (const slot of this.#slots.values()) {
      slot.changes += 1;
      slot.spentPicoUsd = null;
    }
  }

  #boundsOf(organizationId: string, budgets: readonly HardBudget[]): readonly Bound[] {
    return budgets.map((budget) => ({ budget, slot: this.#slotOf(organizationId, budget) }));
  }

  #mayServe(slot: Slot): boolean {
    if (slot.spentPicoUsd === null) return false;
    const { books, clock } = this.#options;
    if (clock.monotonicMs() - slot.loadedMs < goodForMs) return true;
    return !books.isWorthATry && books.mayServeKnown;
  }

  #slotOf(organizationId: string, { slot, spending }: HardBudget): Slot {
    const found = this.find(organizationId, slot);
    if (found !== undefined) return found;
    if (this.#slots.size >= slotsKeptMax) this.#forgetOld();
    const made: Slot = { organizationId, spending, spentPicoUsd: null, heldMicroUsd: 0n, loadedMs: 0, changes: 0 };
    this.#slots.set(`${organizationId} ${slot}`, made);
    return made;
  }

  async #readSlot(slot: Slot): Promise<void> {
    if (this.#mayServe(slot)) return;
    const { books } = this.#options;
    const reading = this.#loadOnce(slot);
    if (slot.spentPicoUsd === null || !books.mayServeKnown) return reading;
    await books.orKnown(reading);
  }

  #loadOnce(slot: Slot): Promise<void> {
    const running = this.#loading.get(slot);
    if (running !== undefined) return running;
    const started = this.#load(slot).finally(() => this.#loading.delete(slot));
    started.catch(() => undefined);
    this.#loading.set(slot, started);
    return started;
  }

  async #load(slot: Slot): Promise<void> {
    const { books, loadSpent, holdsOf, clock } = this.#options;
    for (;;) {
      const { changes, organizationId, spending } = slot;
      const ids = [...holdsOf(slot).keys()];
      const { picoUsd, counted } = await books.ask(() => loadSpent(organizationId, spending, ids));
      if (slot.changes !== changes) continue;
      const recordedIds = new Set(counted);
      for (const [id, hold] of holdsOf(slot)) hold.isCounted = recordedIds.has(id);
      slot.spentPicoUsd = picoUsd;
      slot.loadedMs = clock.monotonicMs();
      return;
    }
  }

  #forgetOld(): void {
    if (this.#options.books.isUnavailable) return;
    for (const [name, slot] of this.#slots) {
      const isOld = this.#options.clock.monotonicMs() - slot.loadedMs >= goodForMs;
      if (isOld && slot.heldMicroUsd === 0n && !this.#loading.has(slot)) this.#slots.delete(name);
    }
  }
}
