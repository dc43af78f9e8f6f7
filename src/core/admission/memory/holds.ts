import { PICO_PER_MICRO } from '#base/money.ts';
import type { AdmitRefusal, AdmitRequest, Settlement, Spender } from '#core/admission/contract/contract.ts';
import type { KeyLimits } from '#core/limits/limits.ts';
import type { Account } from './accounts.ts';
import { type Bound, type CountedSlot, leastLeft } from './budgets.ts';
import type { Key, MonthHold } from './keys.ts';
import type { ModelBound, ModelHold } from './models.ts';

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
  readonly slots: ReadonlyMap<string, CountedSlot>;
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
