import type { Hono } from 'hono';
import type { Log } from '#base/log.ts';
import type { HttpEnv } from '#edge/http/http.ts';
import type { Job } from '#edge/jobs/jobs.ts';

/** A part of a gateway. Parts start in the order of a list, and stop in the reverse order. */
export interface Part {
  /** Name of the part in the log. */
  readonly name: string;
  /** Routes that are mounted at the root, in the order of the list. */
  readonly routes?: Hono<HttpEnv>;
  /** Jobs that run from the start to the stop of the part that runs all jobs. */
  readonly jobs?: readonly Job[];
  readonly start?: () => Promise<void> | void;
  /**
   * Stops the part: after its start, after a start that failed half-way, and where it has no start.
   * @param forceStop ends running requests when it aborts, as if their time was over
   */
  readonly stop?: (forceStop: AbortSignal) => Promise<void> | void;
}

export interface StartedParts {
  /**
   * Stops every part; a second call waits for the first call.
   * @throws AggregateError with the errors of parts, each logged with the name of its part; all others are stopped
   */
  readonly stop: (forceStop?: AbortSignal) => Promise<void>;
}

/** @throws the error of a part that could not start, after that part and all parts before it were stopped */
export async function startParts(parts: readonly Part[], log: Log): Promise<StartedParts> {
  const begun: Part[] = [];
  try {
    for (const part of parts) {
      begun.push(part);
      await part.start?.();
    }
  } catch (error) {
    await stopParts(begun, log, never());
    throw error;
  }
  let stopping: Promise<void> | null = null;
  return {
    stop(forceStop = never()) {
      stopping ??= stopParts(begun, log, forceStop).then((errors) => {
        if (errors.length > 0) throw new AggregateError(errors, 'parts of the gateway could not be stopped');
      });
      return stopping;
    },
  };
}

/** @returns the errors of the parts */
async function stopParts(parts: readonly Part[], log: Log, forceStop: AbortSignal): Promise<readonly unknown[]> {
  const errors: unknown[] = [];
  for (const { name, stop } of parts.toReversed()) {
    try {
      await stop?.(forceStop);
    } catch (error) {
      log.error({ err: error, part: name }, 'a part of the gateway could not be stopped; the other parts still stop');
      errors.push(error);
    }
  }
  return errors;
}

function never(): AbortSignal {
  return new AbortController().signal;
}
