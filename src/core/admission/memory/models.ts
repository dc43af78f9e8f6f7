import type { Clock } from '#base/clock.ts';
import { uuidTimeMs } from '#base/id.ts';
import type { LedgerHealth, CountedDay, LoadDay, ProjectLimit } from '#core/admission/contract/contract.ts';
import {
  countOfModel,
  dayStartMs,
  type ModelRefusal,
  type ModelUse,
  type ModelView,
  nextDayMs,
  refuseByModel,
  reserve,
  rollModel,
  rollWindow,
  unusedModel,
  viewModel,
} from '#core/limits/limits.ts';

/** A project's use of a model. */
export interface ModelSlot {
  readonly use: ModelUse;
  /** Counts admissions and settlements. Requests that are read while one happens may or may not include it. */
  changes: number;
  running: number;
}

/** Counts of a request against the limits of its project. */
export interface ModelHold {
  readonly slot: ModelSlot;
  readonly tokensPerMinute: number | null;
  /** Start of the window and of the day in which it counts. */
  readonly windowStartMs: number;
  readonly dayMs: number;
  readonly reservedTokens: number;
}

/** The limits of a request's project, with their known use. */
export interface ModelBound {
  readonly limit: ProjectLimit;
  readonly slot: ModelSlot;
}

export interface MemoryModelsOptions {
  readonly loadDay: LoadDay;
  /** Ids of requests that run here and count against a slot. */
  readonly holdsOf: (slot: ModelSlot) => readonly string[];
  /** The time in which windows are counted, in milliseconds. */
  readonly windowsNowMs: () => number;
  readonly books: LedgerHealth;
  readonly clock: Clock;
}

/** If there are this many slots, those without state to remember are dropped. */
const slotsKeptMax = 10_000;

/** Use of the models that projects have limits for, in this process's memory. */
export class MemoryModels {
  readonly #options: MemoryModelsOptions;
  readonly #slots = new Map<string, ModelSlot>();
  readonly #loading = new Map<ModelSlot, Promise<void>>();

  constructor(options: MemoryModelsOptions) {
    this.#options = options;
  }

  boundBy(limit: ProjectLimit): ModelBound {
    return { limit, slot: this.#slotOf(limit.slot) };
  }

  knowsDay({ limit, slot }: ModelBound): boolean {
    if (limit.limits.requestsPerDay === null) return true;
    this.#roll({ limit, slot });
    return slot.use.dayMs !== null;
  }

  /** Reads the requests of the day. @throws errors of the database */
  readDay(organizationId: string, { limit: { projectId, model }, slot }: ModelBound): Promise<void> {
    const running = this.#loading.get(slot);
    if (running !== undefined) return running;
    const started = this.#load({ organizationId, projectId, model }, slot).finally(() => this.#loading.delete(slot));
    this.#loading.set(slot, started);
    return started;
  }

  refuse(bound: ModelBound, estimatedTokens: number): ModelRefusal | null {
    this.#roll(bound);
    return refuseByModel(bound.slot.use, bound.limit.limits, estimatedTokens, this.#moment);
  }

  view({ limit, slot }: ModelBound): ModelView {
    return viewModel(slot.use, limit.limits, this.#moment);
  }

  /** Counts an admitted request. */
  take(bound: ModelBound, estimatedTokens: number): ModelHold {
    this.#roll(bound);
    const { slot, limit } = bound;
    const { tokensPerMinute } = limit.limits;
    const reservedTokens = reserve(estimatedTokens, tokensPerMinute);
    slot.changes += 1;
    slot.running += 1;
    countOfModel(slot.use, this.#options.windowsNowMs());
    slot.use.tokens += reservedTokens;
    // Set even if the day's count is not known yet: a later read includes the request.
    const dayMs = dayStartMs(this.#options.clock.now());
    return { slot, tokensPerMinute, windowStartMs: slot.use.windowStartMs, dayMs, reservedTokens };
  }

  /** Removes the counts of a request that another model serves now. */
  giveBack({ slot, tokensPerMinute, windowStartMs, dayMs, reservedTokens }: ModelHold): void {
    const { use } = slot;
    slot.changes += 1;
    slot.running -= 1;
    rollWindow(use, { tokensPerMinute }, this.#options.windowsNowMs());
    if (use.windowStartMs === windowStartMs) {
      use.requests = Math.max(0, use.requests - 1);
      use.tokens = Math.max(0, use.tokens - reservedTokens);
    }
    if (use.dayMs === dayMs) use.dayRequests = Math.max(0, use.dayRequests - 1);
  }

  /** Replaces reserved tokens with used ones. A window that is over gives nothing back. */
  correct({ slot: { use }, tokensPerMinute, windowStartMs, reservedTokens }: ModelHold, tokens: number): void {
    if (tokensPerMinute === null) return;
    const nowMs = this.#options.windowsNowMs();
    rollWindow(use, { tokensPerMinute }, nowMs);
    const beyond = tokens - reservedTokens;
    if (beyond > 0 || use.windowStartMs === windowStartMs) use.tokens = Math.max(0, use.tokens + beyond);
    if (use.windowStartMs === 0 && use.tokens > 0) use.windowStartMs = nowMs;
  }

  /** Forgets the counts of days: the database got requests that did not run here, so the days are read again. */
  forgetDays(): void {
    for (const slot of this.#slots.values()) {
      slot.changes += 1;
      slot.use.dayMs = null;
      slot.use.dayRequests = 0;
    }
  }

  /** Notes that a request is recorded in the database. */
  settled({ slot }: ModelHold): void {
    slot.changes += 1;
    slot.running -= 1;
  }

  get #moment(): { readonly nowMs: number; readonly hereMs: number } {
    return { nowMs: this.#options.windowsNowMs(), hereMs: this.#options.clock.now() };
  }

  #roll({ slot, limit }: ModelBound): void {
    const { nowMs, hereMs } = this.#moment;
    rollModel(slot.use, limit.limits, nowMs, hereMs);
  }

  #slotOf(name: string): ModelSlot {
    const found = this.#slots.get(name);
    if (found !== undefined) return found;
    if (this.#slots.size >= slotsKeptMax) this.#forgetOld();
    const made: ModelSlot = { use: unusedModel(), changes: 0, running: 0 };
    this.#slots.set(name, made);
    return made;
  }

  /** Reads the day from the database, and adds the requests that run or wait to be recorded. */
  async #load(of: Omit<CountedDay, 'dayMs'>, slot: ModelSlot): Promise<void> {
    const { books, clock, loadDay, holdsOf } = this.#options;
    for (;;) {
      const { changes } = slot;
      const dayMs = dayStartMs(clock.now());
      const ids = holdsOf(slot).filter((id) => uuidTimeMs(id) >= dayMs && uuidTimeMs(id) < nextDayMs(dayMs));
      const { requests, counted } = await books.ask(() => loadDay({ ...of, dayMs }, ids));
      if (slot.changes !== changes) continue;
      const recordedIds = new Set(counted);
      slot.use.dayMs = dayMs;
      slot.use.dayRequests = requests + ids.filter((id) => !recordedIds.has(id)).length;
      return;
    }
  }

  #forgetOld(): void {
    const endedMs = this.#options.windowsNowMs() - 60_000;
    for (const [name, slot] of this.#slots) {
      const { use, running } = slot;
      const isIdle = running === 0 && use.tokens === 0 && use.windowStartMs < endedMs && !this.#loading.has(slot);
      if (isIdle && !this.#options.books.isUnavailable) this.#slots.delete(name);
    }
  }
}
