import type { Clock } from '#base/clock.ts';
import type {
  CountedTokens,
  HardBudgets,
  KeyRef,
  LoadDay,
  LoadSpent,
  ProjectLimits,
} from '#core/admission/contract/contract.ts';
import type { LoadBalance } from './accounts.ts';

export interface MemoryAdmissionOptions {
  readonly loadBalance: LoadBalance;
  /**
   * Reads the tokens that the database has for a key since a time, in milliseconds since the Unix epoch, and which of
   * these requests are among them, in one snapshot.
   */
  readonly loadTokens: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Calls the listener after a credit or an adjustment was recorded. */
  readonly onCredit: (listener: (organizationId: string, deltaPicoUsd: bigint) => void) => void;
  /** Budgets. Absent: no spender has any. */
  readonly budgets?: HardBudgets;
  readonly loadSpent?: LoadSpent;
  /** Limits of projects. Absent: no project has any. */
  readonly projectLimits?: ProjectLimits;
  readonly loadDay?: LoadDay;
  /** Milliseconds for which known balances and months may be used while the database does not answer. */
  readonly staleMs?: number;
  readonly clock: Clock;
}
