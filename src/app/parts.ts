import type { Hono } from 'hono';
import type { Log } from '#base/log.ts';
import type { HttpEnv } from '#edge/http/http.ts';
import type { Job } from '#edge/jobs/jobs.ts';

/** A part of a gateway: parts are started in the order of a list, and stopped in reverse order. */
export interface Part {
  /** For the log. */
  readonly name: string;
  /** Mounted at the root, in the order of the list. */
  readonly routes?: Hono<HttpEnv>;
  /** They run from the start of the part that runs all jobs to its stop. */
  readonly jobs?: readonly Job[];
  readonly start?: () => Promise<void> | void;
  /**
   * Called when the part was started, when its start failed half-way, and where it has no start.
   * @param forceStop once it aborts, running requests are ended as if their time was over
   */
  readonly stop?: (forceStop: AbortSignal) => Promise<void> | void;
}

export interface StartedParts {
  /**
   * Stops every part; a second call waits for the first one.
   * @throws AggregateError of what parts threw, each logged by its name; the others are stopped all the same
   */
  readonly stop: (forceStop?: AbortSignal) => Promise<void>;
}

/** @throws what the start of a part threw, after that part and those before it were stopped */
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

/** @returns what the parts threw */
async function stopParts(parts: readonly Part[], log: Log, forceStop: AbortSignal): Promise<readonly unknown[]> {
  const errors: unknown[] = [];
  for (const { name, stop } of parts.toReversed()) {
    try {
      await stop?.(forceStop);
    } catch (error) {
      log.error({ err: error, part: name }, 'a part of the gateway could not be stopped; the others are');
      errors.push(error);
    }
  }
  return errors;
}

function never(): AbortSignal {
  return new AbortController().signal;
}
