import { AppError } from '#base/errors.ts';

/** Milliseconds after which a change is late: its connection is lost, or it waits for another transaction. */
const answerMsMax = 20_000;

/** Time limit of an answer, which starts at once. */
export interface AnswerTime {
  /** Stops the time while a body arrives, which has a bound of its own. */
  readonly pause: () => void;
  /** Restarts the time from zero; `ms` is for changes that normally take longer. */
  readonly start: (ms?: number) => void;
}

/**
 * Answers a change in time even if PostgreSQL does not respond: then nobody knows if the change was made.
 * @throws AppError outcome_unknown if the change is late; the change itself is not stopped
 */
export async function answerInTime(change: (time: AnswerTime) => Promise<void>): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const pause = (): void => clearTimeout(timer);
  const start = (ms = answerMsMax): void => {
    pause();
    timer = setTimeout(() => reject(new AppError('outcome_unknown')), ms);
  };
  start();
  try {
    await Promise.race([change({ pause, start }), late]);
  } finally {
    pause();
  }
}
