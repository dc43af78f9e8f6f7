import type { Replica } from '#core/fleet/fleet.ts';
import type { Aborter, AbortOutcome } from '#core/engine-client/engine-client.ts';
import type { Endpoint } from '#edge/inference/request/request.ts';

/** Ids per abort: a request may have thousands of prompts. */
const abortIdsMax = 256;

/** Facts from which the ids follow. */
interface EngineRequestName {
  readonly endpoint: Pick<Endpoint, 'engineRequestId'>;
  readonly requestId: string;
  readonly prompts: number;
  /** Turns that the engine may be in. It knows only the id of the running one. */
  readonly turns: number;
}

/** Yields the ids by which vLLM knows a request of the gateway, in groups. */
function* engineRequestIds({ endpoint, requestId, prompts, turns }: EngineRequestName): Generator<readonly string[]> {
  const id = endpoint.engineRequestId?.replace('{id}', requestId);
  if (id === undefined) return;
  if (id.includes('{turn}')) {
    yield Array.from({ length: turns }, (_, turn) => id.replace('{turn}', String(turn)));
    return;
  }
  if (!id.includes('{prompt}')) {
    yield [id];
    return;
  }
  for (let first = 0; first < prompts; first += abortIdsMax) {
    const length = Math.min(abortIdsMax, prompts - first);
    yield Array.from({ length }, (_, index) => id.replace('{prompt}', String(first + index)));
  }
}

/**
 * Aborts of requests at engines. An abort names the request's id, so that the answer ends with the count of its tokens.
 */

/** Milliseconds that an engine may take to answer an abort; after that, its connection is closed. */
const abortWaitMs = 900;
/** Tries until the answer ends: about a second in all, longer only if each try is slow. */
const abortTries = 6;
const abortRepeatMs = 150;
/** Limits after the client has left: nobody waits, and a busy engine has the final count some seconds later. */
const patientWaitMs = 7000;
const patientTries = 12;

export interface AbortedRequest extends EngineRequestName {
  readonly replica: Pick<Replica, 'endpoint' | 'headerLines' | 'abortFault'>;
}

export interface AbortOptions {
  /** Resolves when the answer has ended. */
  readonly over: Promise<void>;
  readonly isOver: () => boolean;
  /** Nobody waits for the end. */
  readonly isPatient: boolean;
  /** The whole answer is computed: its end is awaited before any abort. */
  readonly isMade: boolean;
}

/**
 * Resolves when the answer has ended, when the engine did not end it within the tries, or when it rejects the abort. Sends
 * no abort to an engine that failed the check of aborts.
 */
export async function abortAtEngine(aborter: Aborter, request: AbortedRequest, options: AbortOptions): Promise<void> {
  const { over, isOver, isPatient, isMade } = options;
  if (isMade) await Promise.race([over, wait(patientWaitMs)]);
  if ((request.replica.abortFault ?? null) !== null) return;
  const [waitMs, triesMax] = isPatient ? [patientWaitMs, patientTries] : [abortWaitMs, abortTries];
  // The engine may not know the id yet when the first try arrives, hence the repeats.
  for (let tries = 0; tries < triesMax && !isOver(); tries += 1) {
    if ((await abort(aborter, request, isOver, waitMs)) !== 'sent') break;
    await Promise.race([over, wait(isPatient ? abortRepeatMs * (1 + tries / 2) : abortRepeatMs)]);
  }
}

/**
 * Aborts the groups of ids in turn. Returns the outcome of the last one, or of the first that the engine did not
 * accept.
 */
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

/** Waits as long as the final count of a complete answer may take. */
export const waitForCount = (): Promise<unknown> => wait(abortWaitMs);

function wait(ms: number): Promise<'late'> {
  return new Promise((resolve) => {
    setTimeout(() => resolve('late'), ms).unref();
  });
}
