import { PICO_PER_MICRO } from '#base/money.ts';
import type { AdmitRefusal, AdmitRequest, Settlement, Spender } from '#core/admission/contract/contract.ts';
import type { KeyLimits } from '#core/limits/limits.ts';
import type { Account } from './accounts.ts';
import { type Bound, type CountedSlot, leastLeft, leftOf } from './budgets.ts';
import type { Key, MonthHold } from './keys.ts';
import type { ModelBound, ModelHold, ModelSlot } from './models.ts';

/** The hold of an admitted request. */
export interface Hold extends MonthHold {
  readonly account: Account;
  readonly key: Key;
  readonly limits: KeyLimits;
  /** Start of the window that the reservation counts in. */
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  readonly spender: Spender | null;
  /** Budget slots that the request counts against besides the wallet, by name. */
  slots: ReadonlyMap<string, CountedSlot>;
  /** Catalog id of the model that serves the request. */
  modelId: string | undefined;
  /** Counts against the limits of the request's project; null if there were none. */
  model: ModelHold | null;
  heldMicroUsd: bigint;
  /** True if the balance last read from the database includes its charge. */
  isCharged: boolean;
  spooled: Settlement | null;
}

/** Values that a decision about a request needs. */
export interface Known {
  readonly account: Account;
  readonly key: Key;
  readonly bounds: readonly Bound[];
  /** Null if the project has no limits for the model. */
  readonly model: ModelBound | null;
}

const noSlots: ReadonlyMap<string, CountedSlot> = new Map();

export const availableMicroUsd = (account: Account): bigint =>
  account.balancePicoUsd / PICO_PER_MICRO - account.heldMicroUsd;

/** Changes a hold, and wallet and budgets with it. No other code changes holds. */
export function changeHold(hold: Hold, deltaMicroUsd: bigint): void {
  hold.heldMicroUsd += deltaMicroUsd;
  hold.account.heldMicroUsd += deltaMicroUsd;
  if (hold.slots === noSlots) return;
  for (const { slot } of hold.slots.values()) slot.heldMicroUsd += deltaMicroUsd;
}

export function slotsOf(bounds: readonly Bound[]): ReadonlyMap<string, CountedSlot> {
  if (bounds.length === 0) return noSlots;
  for (const { slot } of bounds) slot.changes += 1;
  return new Map(bounds.map(({ budget, slot }) => [budget.slot, { slot, isCounted: false }]));
}

/** True if a budget that a request does not count against yet does not have its hold. */
export const lacksHold = (bounds: readonly Bound[], { heldMicroUsd, slots }: Hold): boolean =>
  heldMicroUsd > 0n && bounds.some((one) => !slots.has(one.budget.slot) && leftOf(one) < heldMicroUsd);

/** Returns the requests that count against a budget. */
export function holdsOfSlot(
  holds: ReadonlyMap<string, Hold>,
  slot: CountedSlot['slot'],
): ReadonlyMap<string, CountedSlot> {
  const found = new Map<string, CountedSlot>();
  for (const [id, { slots }] of holds) {
    for (const counted of slots.values()) if (counted.slot === slot) found.set(id, counted);
  }
  return found;
}

/** Returns the requests that count against the limits of a model. */
export const idsOfModel = (holds: ReadonlyMap<string, Hold>, slot: ModelSlot): readonly string[] =>
  [...holds].filter(([, { model }]) => model?.slot === slot).map(([id]) => id);

/** Replaces the budgets that a request counts against. The hold moves with it, whatever they have left. */
export function changeSlots(hold: Hold, bounds: readonly Bound[]): void {
  const { heldMicroUsd, slots } = hold;
  changeHold(hold, -heldMicroUsd);
  const kept = bounds.flatMap(({ budget }) => {
    const counted = slots.get(budget.slot);
    return counted === undefined ? [] : [[budget.slot, counted] as const];
  });
  hold.slots = bounds.length === 0 ? noSlots : new Map([...slotsOf(bounds), ...kept]);
  changeHold(hold, heldMicroUsd);
}

export function holdFor({ account, bounds }: Known, { wantedMicroUsd }: AdmitRequest): bigint {
  const available = leastLeft(availableMicroUsd(account), bounds);
  return wantedMicroUsd === 0n || available >= wantedMicroUsd ? wantedMicroUsd : available;
}

/** Rejects a request that the wallet cannot pay. A free request needs no money. */
export function refuseByFunds(account: Account, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  if (neededMicroUsd === 0n) return null;
  const { balancePicoUsd, heldMicroUsd } = account;
  if (balancePicoUsd > 0n && availableMicroUsd(account) >= neededMicroUsd) return null;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
