import type { Log } from '#base/log.ts';
import { createPacedLoop } from '#base/paced-loop.ts';
import { type ClaimedRun, leaseSeconds, RunLostError } from './claimed-run.ts';
import type { Claims } from './claims.ts';
import { clearRun, executeRun, type ExecutionParts } from './execution.ts';
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
/** When PostgreSQL comes back, or all gateways start, every place has this time to be heard of again. */
const heardAgainMs = 2 * leaseSeconds * 1000;

export function createRunLoop(options: RunLoopOptions): RunLoop {
  const { claims, atOnceMax, abandonedMs, clock, log } = options;
  const running = new Map<string, Promise<void>>();
  const stop = new AbortController();
  /** How often runs could not go on here, by their ids. */
  const tries = new Map<string, number>();
  /** 0 before the first look. */
  let sweepAtMs = 0;
  /** Since when PostgreSQL has answered without a break. */
  let answeredSinceMs: number | null = null;

  async function execute(runner: Runner, run: ClaimedRun): Promise<void> {
    try {
      await executeRun({ ...options, runner, signal: stop.signal }, run);
      tries.delete(run.id);
    } catch (error) {
      if (error instanceof RunLostError) return;
      // Another gateway of the place goes on with it at once, or this one when it is back.
      const isStop = error instanceof DetachedError;
      if (!isStop) log.warn({ err: error, runId: run.id }, 'a run could not go on; it is taken up again');
      if (isStop) await claims.release(run).catch(() => undefined);
      else await giveUpAtLast(run);
    } finally {
      running.delete(run.id);
      loop.wake();
    }
  }

  /** While PostgreSQL is away nothing is given up: that it cannot go on could not be written down either. */
  async function giveUpAtLast(run: ClaimedRun): Promise<void> {
    const count = (tries.get(run.id) ?? 0) + 1;
    tries.set(run.id, count);
    if (count < options.triesMax) return;
    const failureMessage = 'the gateway could not go on with it, and its log says why; what it had made is kept';
    const isWritten = await claims
      .turn(run, { status: 'FAILED', failureCode: 'INTERRUPTED', failureMessage })
      .catch(() => false);
    if (!isWritten) return;
    tries.delete(run.id);
    // What still runs of it is ended, and its state kept, as of any run that is over and has left a folder.
    sweepAtMs = 0;
  }

  async function claim(runner: Runner): Promise<void> {
    const { place } = runner;
    while (running.size < atOnceMax && !stop.signal.aborted) {
      const run = (await claims.adopt(place)) ?? (await claims.claimNext(place));
      if (run === null || running.has(run.id)) return;
      running.set(run.id, execute(runner, run));
    }
  }

  /** Folders of a gateway that was killed at the end of a run, or was away for so long that its runs were given up. */
  async function removeEnded(runner: Runner): Promise<void> {
    for (const runId of await runner.list()) {
      const run = running.has(runId) ? null : await options.find(runId);
      if (run === null || !isFinal(run.status)) continue;
      await clearRun({ ...options, runner }, run).catch((error: unknown) =>
        log.warn({ err: error, runId }, 'what is left of a run could not be removed; it is tried again'),
      );
    }
  }

  const loop = createPacedLoop(async () => {
    try {
      const isNeeded = running.size > 0 || (sweepAtMs === 0 && options.hasFolders()) || (await claims.hasWork());
      if (!isNeeded) return idleEveryMs;
      const runner = await options.runner();
      answeredSinceMs ??= clock.monotonicMs();
      if (clock.monotonicMs() >= sweepAtMs) {
        const isHeard = clock.monotonicMs() - answeredSinceMs >= heardAgainMs;
        const place = runner?.place ?? null;
        await claims.sweep({ abandonedMs: isHeard ? abandonedMs : null, pendingMs, place });
        if (runner !== null) await removeEnded(runner);
        sweepAtMs = clock.monotonicMs() + sweepEveryMs;
      }
      if (runner === null) return idleEveryMs;
      await claim(runner);
    } catch (error) {
      answeredSinceMs = null;
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
