import type { Clock } from '#base/clock.ts';
import type { ClaimedRun } from './claimed-run.ts';
import type { Claims } from './claims.ts';

/** Conditions under which a run, or the machine that it runs on, is given up. */

/**
 * Time that every place has to renew its leases after PostgreSQL is back or all gateways start: gateways poll every 5
 * seconds.
 */
const heardAgainMs = 30_000;

export interface AnswerWatch {
  /** Records that PostgreSQL has just answered. */
  note(): void;
  /** True if PostgreSQL has answered for so long that every running gateway has sent news. */
  isHeard(): boolean;
}

/** Watches the times of answers: a frozen database fails no query, and only answers late. */
export function watchAnswers(clock: Clock): AnswerWatch {
  let lastMs = Number.NEGATIVE_INFINITY;
  let sinceMs = 0;
  return {
    note() {
      const nowMs = clock.monotonicMs();
      if (nowMs - lastMs > heardAgainMs) sinceMs = nowMs;
      lastMs = nowMs;
    },
    isHeard: () => clock.monotonicMs() - sinceMs >= heardAgainMs,
  };
}

const failureMessage =
  'the gateway could not continue the run (see its log); the resources that the run created are kept';

export interface Tries {
  /** @returns true if this was the last attempt, and the run has failed */
  failed(run: ClaimedRun): Promise<boolean>;
  succeeded(runId: string): void;
}

/**
 * Counts failed attempts to continue runs. While PostgreSQL is unreachable no run is given up: that could not be
 * stored.
 */
export function countTries(claims: Pick<Claims, 'transition'>, triesMax: number): Tries {
  const tries = new Map<string, number>();
  return {
    async failed(run) {
      const count = (tries.get(run.id) ?? 0) + 1;
      tries.set(run.id, count);
      if (count < triesMax) return false;
      const end = { status: 'FAILED', failureCode: 'INTERRUPTED', failureMessage } as const;
      const isWritten = await claims.transition(run, end).catch(() => false);
      if (isWritten) tries.delete(run.id);
      return isWritten;
    },
    succeeded: (runId) => void tries.delete(runId),
  };
}
