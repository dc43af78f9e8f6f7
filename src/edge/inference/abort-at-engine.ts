import type { Replica } from '#core/fleet/fleet.ts';
import type { Aborter, AbortOutcome } from '#core/proxy/proxy.ts';
import { engineRequestIds, type EngineRequestName } from './engine-request-ids.ts';

/** How an engine is told to end a request: by its id, so that its answer ends with the count of what it has made. */

/** How long an engine may take to answer an abort; then its connection is closed. */
const abortWaitMs = 900;
/** Aborts are repeated until the answer ends: for about a second, longer only where each is slow. */
const abortTries = 6;
const abortRepeatMs = 150;
/** Where the client has left no one waits, and a busy engine has the final count some seconds later. */
const patientWaitMs = 7000;
const patientTries = 12;

export interface AbortedRequest extends EngineRequestName {
  readonly replica: Pick<Replica, 'endpoint' | 'headerLines'>;
}

export interface AbortOptions {
  /** Resolves when the answer has ended. */
  readonly over: Promise<void>;
  readonly isOver: () => boolean;
  /** Nobody waits for the end. */
  readonly isPatient: boolean;
  /** All of the answer is made: its end is waited for before anything is aborted. */
  readonly isMade: boolean;
}

/** Resolves when the answer has ended, or when an engine has not ended it for so long, or does not take the abort. */
export async function abortAtEngine(aborter: Aborter, request: AbortedRequest, options: AbortOptions): Promise<void> {
  const { over, isOver, isPatient, isMade } = options;
  if (isMade) await Promise.race([over, wait(patientWaitMs)]);
  const [waitMs, triesMax] = isPatient ? [patientWaitMs, patientTries] : [abortWaitMs, abortTries];
  // The engine may not know the id yet when the first try arrives, hence the repeats.
  for (let tries = 0; tries < triesMax && !isOver(); tries += 1) {
    if ((await abort(aborter, request, isOver, waitMs)) !== 'sent') break;
    await Promise.race([over, wait(isPatient ? abortRepeatMs * (1 + tries / 2) : abortRepeatMs)]);
  }
}

/** Aborts id by id; the outcome is that of the last, or of the first that the engine did not take. */
async function abort(
  aborter: Aborter,
  request: AbortedRequest,
  isOver: () => boolean,
  waitMs: number,
): Promise<AbortOutcome | 'late'> {
  const { endpoint, headerLines } = request.replica;
  let outcome: AbortOutcome | 'late' = 'failed';
  for (const ids of engineRequestIds(request)) {
    outcome = await Promise.race([aborter.abort(endpoint, headerLines, ids), wait(waitMs)]);
    if (outcome !== 'sent' || isOver()) break;
  }
  return outcome;
}

/** So long the final count of a complete answer is waited for. */
export const waitForCount = (): Promise<unknown> => wait(abortWaitMs);

function wait(ms: number): Promise<'late'> {
  return new Promise((resolve) => {
    setTimeout(() => resolve('late'), ms).unref();
  });
}
