import { within } from './within.ts';

/**
 * Reports work that takes longer than `waitMs`. The work goes on, and a rejection after that time is ignored.
 * @throws what the work rejects with in time
 */
export function isLate(work: Promise<unknown>, waitMs: number): Promise<boolean> {
  return within(
    work.then(() => false),
    waitMs,
    () => true,
  );
}
