import type { Clock } from '#base/clock.ts';
import type { CountedTokens, HardBudgets, KeyRef, LoadDay, LoadSpent, ProjectLimits } from './contract.ts';
import type { LoadBalance } from './memory-accounts.ts';

export interface MemoryAdmissionOptions {
  readonly loadBalance: LoadBalance;
  /**
   * Reads the tokens that the books have of a key since a moment, in milliseconds since the Unix epoch, and which of
   * these requests are among them, at one moment.
   */
  readonly loadTokens: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Calls the listener after a credit or an adjustment was booked. */
  readonly onCredit: (listener: (organizationId: string, deltaPicoUsd: bigint) => void) => void;
  /** Without them nobody has a budget. */
  readonly budgets?: HardBudgets;
  readonly loadSpent?: LoadSpent;
  /** Without them no project has limits. */
  readonly projectLimits?: ProjectLimits;
  readonly loadDay?: LoadDay;
  /** How long balances and months that are known serve while the books do not answer. */
  readonly staleMs?: number;
  readonly clock: Clock;
}
