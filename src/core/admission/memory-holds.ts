import { PICO_PER_MICRO } from '#base/money.ts';
import type { KeyLimits } from '#core/limits/limits.ts';
import type { AdmitRefusal, AdmitRequest, Settlement, Spender } from './contract.ts';
import type { Account } from './memory-accounts.ts';
import { type Bound, type CountedSlot, leastLeft } from './memory-budgets.ts';
import type { Key, MonthHold } from './memory-keys.ts';
import type { ModelBound, ModelHold } from './memory-models.ts';

/** What an admitted request holds. */
export interface Hold extends MonthHold {
  readonly account: Account;
  readonly key: Key;
  readonly limits: KeyLimits;
  /** Start of the window that the reservation counts in. */
  readonly windowStartMs: number;
  readonly reservedTokens: number;
  readonly spender: Spender | null;
  /** What it counts against beside the wallet, by the name of the slot. */
  readonly slots: ReadonlyMap<string, CountedSlot>;
  /** What it counts as against the limits of its project; null where there were none. */
  model: ModelHold | null;
  heldMicroUsd: bigint;
  /** The balance that the books said last has its charge already. */
  isCharged: boolean;
  spooled: Settlement | null;
}

/** What decides about a request. */
export interface Known {
  readonly account: Account;
  readonly key: Key;
  readonly bounds: readonly Bound[];
  /** Null where its project has no limits for its model. */
  readonly model: ModelBound | null;
}

const noSlots: ReadonlyMap<string, CountedSlot> = new Map();

export const availableMicroUsd = (account: Account): bigint =>
  account.balancePicoUsd / PICO_PER_MICRO - account.heldMicroUsd;

/** The one place where a hold changes: wallet and budgets follow it. */
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

export function holdFor({ account, bounds }: Known, { wantedMicroUsd }: AdmitRequest): bigint {
  const available = leastLeft(availableMicroUsd(account), bounds);
  return wantedMicroUsd === 0n || available >= wantedMicroUsd ? wantedMicroUsd : available;
}

/** A request that costs nothing needs no money. */
export function refuseByFunds(account: Account, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  if (neededMicroUsd === 0n) return null;
  const { balancePicoUsd, heldMicroUsd } = account;
  if (balancePicoUsd > 0n && availableMicroUsd(account) >= neededMicroUsd) return null;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
