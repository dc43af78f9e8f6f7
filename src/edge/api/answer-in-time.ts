import { AppError } from '#base/errors.ts';

/** A statement that is answered later than this was sent on a connection that is lost, or waits for what is not ours. */
const answerMsMax = 20_000;

/** The time that an answer has; it runs from the beginning. */
export interface AnswerTime {
  /** While a body comes, which has a bound of its own. */
  readonly pause: () => void;
  /** From the beginning, after `pause`; `ms` where it takes longer without anything being wrong. */
  readonly start: (ms?: number) => void;
}

/**
 * A change is answered in time also where PostgreSQL says nothing: nobody knows then whether it was made.
 * @throws AppError outcome_unknown when it is late; what runs on is left alone
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
