import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { createPacedLoop } from '#base/paced-loop.ts';
import { type ClaimedRun, RunLostError } from './claimed-run.ts';
import type { Claims } from './claims.ts';
import { clearRun, executeRun, type ExecutionParts } from './execution.ts';
import { countTries, watchAnswers } from './giving-up.ts';
import { DetachedError } from './phase.ts';
import type { Run } from './run-rows.ts';
import { isFinal } from './run-status.ts';
import type { Runner } from '#core/runs/runner/runner.ts';

/** Claims runs and takes them to their end, as many at once as the gateway may. */
export interface RunLoop {
  start(): void;
  /** Looks for work at once. */
  wake(): void;
  /** Claims nothing more and lets go of what runs, which goes on by itself. */
  close(): Promise<void>;
}

export interface RunLoopOptions extends Omit<ExecutionParts, 'signal' | 'runner'> {
  readonly claims: Claims;
  /** Null where nothing here can run Terraform. Asked for when there is something to run. */
  readonly runner: () => Promise<Runner | null>;
  readonly atOnceMax: number;
  /** Whether folders of runs are here, for which something is to be done at the start although nothing waits. */
  readonly hasFolders: () => boolean;
  readonly find: (runId: string) => Promise<Run | null>;
  /** How long nobody may have heard of a run's machine before the run counts as lost; milliseconds. */
  readonly abandonedMs: number;
  /** How often a run may not be able to go on, a lease apart: then it holds its cluster no longer. */
  readonly triesMax: number;
  readonly log: Log;
}

const lookEveryMs = 1000;
/** While nothing waits: whoever adds a run wakes its own gateway. */
const idleEveryMs = 5000;
const sweepEveryMs = 60_000;
const pendingMs = 24 * 3_600_000;

export function createRunLoop(options: RunLoopOptions): RunLoop {
  const { claims, atOnceMax, abandonedMs, clock, log } = options;
  const hasKey = createKeyCheck(options);
  const running = new Map<string, Promise<void>>();
  const stop = new AbortController();
  /** What the process before this one held; nobody else goes on with it before its lease has lapsed. */
  let isOwnReleased = false;
  const tries = countTries(claims, options.triesMax);
  const answers = watchAnswers(clock);
  /** 0 before the first look. */
  let sweepAtMs = 0;

  async function execute(runner: Runner, run: ClaimedRun): Promise<void> {
    try {
      await executeRun({ ...options, runner, signal: stop.signal }, run);
      tries.succeeded(run.id);
    } catch (error) {
      if (error instanceof RunLostError) return;
      // Another gateway of the place goes on with it at once, or this one when it is back.
      const isStop = error instanceof DetachedError;
      if (!isStop) log.warn({ err: error, runId: run.id }, 'a run could not go on; it is taken up again');
      if (isStop) await claims.release(run).catch(() => undefined);
      // What still runs of it is ended, and its state kept, as of any run that is over and has left a folder.
      else if (await tries.failed(run)) sweepAtMs = 0;
    } finally {
      running.delete(run.id);
      loop.wake();
    }
  }

  async function claim(runner: Runner): Promise<void> {
    const { place } = runner;
    while (running.size < atOnceMax && !stop.signal.aborted) {
      const run = (await claims.adopt(place)) ?? ((await hasKey()) ? await claims.claimNext(place) : null);
      if (run === null || running.has(run.id)) return;
      running.set(run.id, execute(runner, run));
    }
  }

  const loop = createPacedLoop(async () => {
    try {
      if (!isOwnReleased) await claims.releaseOwn();
      isOwnReleased = true;
      const hasWork = await claims.hasWork();
      answers.note();
      const isNeeded = hasWork || running.size > 0 || (sweepAtMs === 0 && options.hasFolders());
      if (!isNeeded) return idleEveryMs;
      const runner = await options.runner();
      if (clock.monotonicMs() >= sweepAtMs) {
        const places = runner === null ? [] : [runner.place];
        await claims.sweep({ abandonedMs: answers.isHeard() ? abandonedMs : null, pendingMs, places });
        if (runner !== null) await removeEnded(options, runner, (runId) => running.has(runId));
        sweepAtMs = clock.monotonicMs() + sweepEveryMs;
      }
      if (runner === null) return idleEveryMs;
      await claim(runner);
    } catch (error) {
      log.warn({ err: error }, 'runs could not be looked for; they are looked for again');
    }
    return lookEveryMs;
  });

  return {
    start: () => loop.start(0),
    wake: () => loop.wake(),
    async close() {
      stop.abort();
      await loop.close();
      await Promise.all(running.values());
    },
  };
}

/** Without the platform key nothing can be begun: it waits for this gateway to get it, or for one that has it. */
function createKeyCheck({ sealer, log }: Pick<RunLoopOptions, 'sealer' | 'log'>): () => Promise<boolean> {
  let isMissing = false;
  return async () => {
    try {
      await sealer.mark();
      isMissing = false;
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'secrets_unavailable')) throw error;
      const trouble = { trouble: error.message };
      if (!isMissing) log.error(trouble, 'runs wait: this gateway cannot read what they are sealed with');
      isMissing = true;
    }
    return !isMissing;
  };
}

/** Folders of a gateway that was killed at the end of a run, or was away for so long that its runs were given up. */
async function removeEnded(
  options: RunLoopOptions,
  runner: Runner,
  isRunning: (runId: string) => boolean,
): Promise<void> {
  const { find, log } = options;
  for (const runId of await runner.list()) {
    const run = isRunning(runId) ? null : await find(runId);
    if (run === null || !isFinal(run.status)) continue;
    await clearRun({ ...options, runner }, run).catch((error: unknown) =>
      log.warn({ err: error, runId }, 'what is left of a run could not be removed; it is tried again'),
    );
  }
}
