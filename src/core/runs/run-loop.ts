import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { createPacedLoop } from '#base/queues/queues.ts';
import { clearRun, DetachedError, executeRun, type ExecutionParts } from '#core/runs/execute/execute.ts';
import {
  type ClaimedRun,
  type Claims,
  countTries,
  isFinal,
  type Run,
  RunLostError,
  type Tries,
  waitHoursMax,
  watchAnswers,
} from '#core/runs/lifecycle/lifecycle.ts';
import type { Runner } from '#core/runs/runner/runner.ts';
import type { Places } from './places.ts';

/** Claims runs and runs them to their end, up to `atOnceMax` at once. */
export interface RunLoop {
  start(): void;
  /** Checks for work at once. */
  wake(): void;
  /** Claims nothing more and detaches from its runs, which keep running. */
  close(): Promise<void>;
}

export interface RunLoopOptions extends Omit<ExecutionParts, 'signal' | 'runner'> {
  readonly claims: Claims;
  readonly places: Places;
  readonly atOnceMax: number;
  readonly find: (runId: string) => Promise<Run | null>;
  /** Milliseconds without news of a run's machine after which the run counts as lost. */
  readonly abandonedMs: number;
  /**
   * Number of failed attempts to continue a run, one lease apart, after which the run no longer occupies its cluster.
   */
  readonly triesMax: number;
  readonly log: Log;
}

const pollMs = 1000;
/** Interval while nothing is pending: adding a run wakes the loop of the same gateway. */
const idleEveryMs = 5000;
const sweepEveryMs = 60_000;
const pendingMs = waitHoursMax * 3_600_000;

export function createRunLoop(options: RunLoopOptions): RunLoop {
  const { claims, places, atOnceMax, clock, log } = options;
  const hasKey = createKeyCheck(options);
  const running = new Map<string, Promise<void>>();
  const stop = new AbortController();
  const releaseOwn = createReleaseOwn(claims);
  const tries = countTries(claims, options.triesMax);
  const answers = watchAnswers(clock);
  /** 0 before the first sweep. */
  let sweepAtMs = 0;

  async function execute(runner: Runner, run: ClaimedRun): Promise<void> {
    // For a run that was given up, the sweep ends what still runs and stores its state.
    if (await executeOnce({ ...options, runner, signal: stop.signal }, run, tries)) sweepAtMs = 0;
    running.delete(run.id);
    await releaseWaiting(options, run);
    loop.wake();
  }

  const mayBegin = (): boolean => running.size < atOnceMax && !stop.signal.aborted;
  /** @returns true if a run was started */
  async function begin(runner: Runner, ask: (place: string) => Promise<ClaimedRun | null>): Promise<boolean> {
    if (!mayBegin()) return false;
    const run = await ask(runner.place);
    if (run === null || running.has(run.id)) return false;
    running.set(run.id, execute(runner, run));
    return true;
  }

  /** Resumes runs at the place where they were started; sends pending ones to the place with the fewest runs. */
  async function claim(reachable: readonly Runner[]): Promise<void> {
    for (const runner of reachable) while (await begin(runner, (place) => claims.adopt(place)));
    while (mayBegin() && (await hasKey())) {
      const runner = await places.next(await claims.load());
      if (runner === null || !(await begin(runner, (place) => claims.claimNext(place)))) return;
    }
  }

  const loop = createPacedLoop(async () => {
    try {
      await releaseOwn();
      const hasWork = await claims.hasWork();
      answers.note();
      const isSweepDue = clock.monotonicMs() >= sweepAtMs;
      const isLeft = isSweepDue && places.mayHaveLeft();
      if (!hasWork && running.size === 0 && !isLeft) return idleEveryMs;
      const reachable = await places.reachable();
      if (isSweepDue) {
        await sweep(options, reachable, { running, isHeard: answers.isHeard() });
        sweepAtMs = clock.monotonicMs() + sweepEveryMs;
      }
      if (reachable.length === 0) return idleEveryMs;
      await claim(reachable);
    } catch (error) {
      log.warn({ err: error }, 'pending runs could not be read, so this gateway starts none; retrying');
    }
    return pollMs;
  });

  return {
    start: () => loop.start(0),
    wake: () => loop.wake(),
    async close() {
      stop.abort();
      await loop.close();
      await Promise.all(running.values());
      places.close();
    },
  };
}

/** Lets a confirmed plan be claimed. Never throws: the lease ends by itself. */
async function releaseWaiting({ claims, log }: RunLoopOptions, run: ClaimedRun): Promise<void> {
  await claims
    .releaseWaiting(run)
    .catch((error: unknown) => log.warn({ err: error, runId: run.id }, 'a run keeps its lease for up to a minute'));
}

/**
 * Releases, once, what the process before this one had claimed: nobody else resumes these runs before their lease
 * expires.
 */
function createReleaseOwn(claims: Claims): () => Promise<void> {
  let isReleased = false;
  return async () => {
    if (!isReleased) await claims.releaseOwn();
    isReleased = true;
  };
}

/** Without the platform key no run can start: pending runs wait until this gateway gets the key, or another has it. */
function createKeyCheck({ sealer, log }: Pick<RunLoopOptions, 'sealer' | 'log'>): () => Promise<boolean> {
  let isMissing = false;
  return async () => {
    try {
      await sealer.mark();
      isMissing = false;
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'secrets_unavailable')) throw error;
      const trouble = { trouble: error.message };
      if (!isMissing)
        log.error(
          trouble,
          'runs are waiting: this gateway does not have the platform key that encrypts them; restore the platform key',
        );
      isMissing = true;
    }
    return !isMissing;
  };
}

interface Sweep {
  readonly running: ReadonlyMap<string, unknown>;
  /** True if PostgreSQL has answered for long enough: otherwise no gateway could have sent news. */
  readonly isHeard: boolean;
}

async function sweep(
  options: RunLoopOptions,
  reachable: readonly Runner[],
  { running, isHeard }: Sweep,
): Promise<void> {
  const abandonedMs = isHeard ? options.abandonedMs : null;
  await options.claims.sweep({ abandonedMs, pendingMs, places: reachable.map(({ place }) => place) });
  for (const runner of reachable) await removeEnded(options, runner, running);
}

/**
 * Clears what is left of runs whose gateway was killed at their end, or that were given up while their place was
 * unreachable.
 */
async function removeEnded(
  options: RunLoopOptions,
  runner: Runner,
  running: ReadonlyMap<string, unknown>,
): Promise<void> {
  const { log } = options;
  const remaining = await runner.list().catch((error: unknown) => {
    log.warn({ err: error }, 'folders or containers of ended runs could not be listed for removal; retrying');
    return [];
  });
  for (const runId of remaining) {
    const run = running.has(runId) ? null : await options.find(runId);
    if (run === null) continue;
    // A plan that waits is stored: its folder is not needed.
    const held = run.status === 'PLANNED' ? await options.claims.holdWaiting(runId) : null;
    if (held === null && !isFinal(run.status)) continue;
    await clearRun({ ...options, runner }, run).catch((error: unknown) =>
      log.warn({ err: error, runId }, 'folders or containers of an ended run could not be removed; retrying'),
    );
    if (held !== null) await options.claims.releaseWaiting(held);
  }
}

/** Runs a run once. Never throws. @returns true if the run was given up */
async function executeOnce(parts: RunLoopOptions & ExecutionParts, run: ClaimedRun, tries: Tries): Promise<boolean> {
  try {
    await executeRun(parts, run);
    tries.succeeded(run.id);
    return false;
  } catch (error) {
    if (error instanceof RunLostError) return false;
    parts.places.doubt(parts.runner.place);
    if (error instanceof DetachedError) {
      // Another gateway of the place resumes the run at once, or this gateway after its restart.
      await parts.claims.release(run).catch(() => undefined);
      return false;
    }
    parts.log.warn({ err: error, runId: run.id }, 'a run was interrupted by an error; the gateway resumes it');
    return tries.failed(run);
  }
}
