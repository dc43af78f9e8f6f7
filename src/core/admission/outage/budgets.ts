import { PICO_PER_MICRO } from '#base/money.ts';
import { type AdmitRefusal, type HardBudget, heldFor } from '#core/admission/contract/contract.ts';
import type { HoldLeases, LastKnown, OwnHold } from '#core/admission/redis/redis.ts';
import type { OutageAccounts } from './accounts.ts';
import { OutageParts } from './parts.ts';

/** Known spending of a budget, and what this gateway adds to it. */
interface SpentShare {
  /** Number of gateways that divide the remainder. */
  readonly gateways: number;
  spentMicroUsd: bigint;
  /** Amount that other gateways held at the last report. */
  readonly othersMicroUsd: bigint;
  /** Amount that this gateway holds, and has charged since. */
  ownMicroUsd: bigint;
}

/** A budget with this gateway's part of it. */
export interface BudgetPart {
  readonly budget: HardBudget;
  readonly share: SpentShare;
}

export interface OutageBudgetsOptions {
  readonly books: Pick<OutageAccounts, 'spent' | 'gateways'>;
  readonly leases: Pick<HoldLeases, 'holdsOf' | 'heldOfSlot'>;
  readonly known: Pick<LastKnown, 'budget' | 'isBudgetHeard'>;
}

const unavailable: AdmitRefusal = { ok: false, code: 'billing_unavailable' };

const besidesOf = ({ budget, share }: BudgetPart): bigint =>
  budget.amountMicroUsd - share.spentMicroUsd - share.othersMicroUsd;

/** Returns the amount of a budget that this gateway may still hold. */
export function leftOfPart(part: BudgetPart): bigint {
  const besides = besidesOf(part);
  return (besides > 0n ? besides / BigInt(part.share.gateways) : besides) - part.share.ownMicroUsd;
}

export const slotsOf = (parts: readonly BudgetPart[]): readonly string[] => parts.map(({ budget }) => budget.slot);

const without = (some: readonly string[], others: readonly string[]): readonly string[] =>
  some.filter((slot) => !others.includes(slot));

/** True if a budget that a request does not count against yet does not have its hold. */
export const lacksHold = (parts: readonly BudgetPart[], { slots, heldMicroUsd }: OwnHold): boolean =>
  heldMicroUsd > 0n && parts.some((part) => !slots.includes(part.budget.slot) && leftOfPart(part) < heldMicroUsd);

/** Rejects if a budget is used up as far as known, or if only this gateway's part of it is used up. */
export function refuseByParts(parts: readonly BudgetPart[], neededMicroUsd: bigint): AdmitRefusal | null {
  if (neededMicroUsd <= 0n) return null;
  const part = parts.find((one) => leftOfPart(one) < neededMicroUsd);
  if (part === undefined) return null;
  const { budget, share } = part;
  if (share.gateways > 1 && besidesOf(part) - share.ownMicroUsd >= neededMicroUsd) return unavailable;
  const spentPicoUsd = share.spentMicroUsd * PICO_PER_MICRO;
  const heldMicroUsd = share.othersMicroUsd + share.ownMicroUsd;
  return { ok: false, code: 'budget_exceeded', budget, spentPicoUsd, heldMicroUsd };
}

/**
 * Hard budgets while Redis is unavailable. The remainder of a budget is divided among the live gateways, as a wallet
 * is. A part follows the amount of its budget, which may change meanwhile.
 */
export class OutageBudgets {
  readonly #options: OutageBudgetsOptions;
  readonly #shares: OutageParts<SpentShare>;
  readonly #reading = new Map<string, Promise<SpentShare>>();

  constructor(options: OutageBudgetsOptions, before: OutageBudgets | null) {
    this.#options = options;
    this.#shares = new OutageParts(before === null ? null : before.#shares, (name) =>
      options.known.isBudgetHeard(name),
    );
  }

  /** Returns the parts of budgets; null if one must be read first. */
  current(organizationId: string, budgets: readonly HardBudget[]): readonly BudgetPart[] | null {
    const parts: BudgetPart[] = [];
    for (const budget of budgets) {
      const share = this.#shares.get(`${organizationId} ${budget.slot}`);
      if (share === undefined) return null;
      parts.push({ budget, share });
    }
    return parts;
  }

  /** Reads the parts of budgets. @throws an Error if nothing is known and the database does not answer */
  read(organizationId: string, budgets: readonly HardBudget[]): Promise<readonly BudgetPart[]> {
    return Promise.all(
      budgets.map(async (budget) => ({ budget, share: await this.#readOnce(organizationId, budget) })),
    );
  }

  /** Updates parts when the hold of a request of this gateway changes. */
  changed(organizationId: string, slots: readonly string[], deltaMicroUsd: bigint): void {
    for (const slot of slots) {
      const share = this.#shares.find(`${organizationId} ${slot}`);
      if (share !== undefined) share.ownMicroUsd += deltaMicroUsd;
    }
  }

  /** Moves a hold to other budgets. @param hold the hold before it moves */
  rebound({ organizationId, heldMicroUsd, slots: before }: OwnHold, slots: readonly string[]): void {
    this.changed(organizationId, without(before, slots), -heldMicroUsd);
    this.changed(organizationId, without(slots, before), heldMicroUsd);
  }

  #readOnce(organizationId: string, budget: HardBudget): Promise<SpentShare> {
    const name = `${organizationId} ${budget.slot}`;
    const made = this.#shares.get(name);
    if (made !== undefined) return Promise.resolve(made);
    const running = this.#reading.get(name);
    if (running !== undefined) return running;
    const former = this.#shares.takeUp(name);
    const share =
      former === undefined ? this.#make(organizationId, budget) : this.#takeUp(organizationId, budget, former);
    const reading = share.finally(() => this.#reading.delete(name));
    this.#reading.set(name, reading);
    return reading;
  }

  /** Takes a part of an earlier outage, minus what other gateways have spent since according to the database. */
  async #takeUp(organizationId: string, { slot, spending }: HardBudget, share: SpentShare): Promise<SpentShare> {
    const { books, leases } = this.#options;
    const knownMicroUsd = share.spentMicroUsd + share.ownMicroUsd - leases.heldOfSlot(organizationId, slot);
    const recorded = await books.spent(organizationId, { spending, requestIds: [] }, true);
    const beyond = recorded === null ? 0n : heldFor(recorded.picoUsd) - knownMicroUsd;
    if (beyond > 0n) share.spentMicroUsd += beyond;
    return share;
  }

  async #make(organizationId: string, { slot, spending }: HardBudget): Promise<SpentShare> {
    const { books, leases, known } = this.#options;
    const heard = known.budget(organizationId, slot);
    const asked = [...leases.holdsOf(organizationId)].filter(([, { slots }]) => slots.includes(slot));
    const requestIds = asked.map(([id]) => id);
    const [recorded, gateways] = await Promise.all([
      books.spent(organizationId, { spending, requestIds }, heard !== null),
      books.gateways(),
    ]);
    const recordedMicroUsd = recorded === null ? -1n : heldFor(recorded.picoUsd);
    const isHeard = heard !== null && heard.spentMicroUsd > recordedMicroUsd;
    const counted = new Set(isHeard ? [] : recorded?.counted);
    // A request that ended meanwhile and is not in the database's answer counts with its whole hold.
    let ownMicroUsd = 0n;
    for (const [id, hold] of new Map([...asked, ...leases.holdsOf(organizationId)])) {
      if (hold.slots.includes(slot) && !counted.has(id)) ownMicroUsd += hold.heldMicroUsd;
    }
    const others = heard?.othersMicroUsd ?? 0n;
    const share: SpentShare = {
      gateways,
      spentMicroUsd: isHeard ? heard.spentMicroUsd : recordedMicroUsd,
      othersMicroUsd: others > 0n ? others : 0n,
      ownMicroUsd,
    };
    this.#shares.set(`${organizationId} ${slot}`, share);
    return share;
  }
}
