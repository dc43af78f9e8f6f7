import type { Clock } from '#base/clock.ts';
import type { ClaimedRun } from './claimed-run.ts';
import type { Claims } from './claims.ts';

/** When a run, or the machine that it runs on, is given up. */

/** When PostgreSQL comes back, or all gateways start, every place has this time: a gateway looks every five seconds. */
const heardAgainMs = 30_000;

export interface AnswerWatch {
  /** PostgreSQL has just answered. */
  note(): void;
  /** Whether it has answered for so long that whoever is there was heard of. */
  isHeard(): boolean;
}

/** A database that is frozen fails nothing: it only answers late. */
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

const failureMessage = 'the gateway could not go on with it, and its log says why; what it had made is kept';

export interface Tries {
  /** @returns whether it was one too many, and the run has failed */
  failed(run: ClaimedRun): Promise<boolean>;
  succeeded(runId: string): void;
}

/** Counts how often runs could not go on. While PostgreSQL is away nothing is given up: that could not be written down. */
export function countTries(claims: Pick<Claims, 'turn'>, triesMax: number): Tries {
  const tries = new Map<string, number>();
  return {
    async failed(run) {
      const count = (tries.get(run.id) ?? 0) + 1;
      tries.set(run.id, count);
      if (count < triesMax) return false;
      const end = { status: 'FAILED', failureCode: 'INTERRUPTED', failureMessage } as const;
      const isWritten = await claims.turn(run, end).catch(() => false);
      if (isWritten) tries.delete(run.id);
      return isWritten;
    },
    succeeded: (runId) => void tries.delete(runId),
  };
}
