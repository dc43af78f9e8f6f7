import type { Log } from '#base/log.ts';

export { createReplicaCarrier, type ReplicaCarrier } from './replica-carrier.ts';

/** Work that is done at intervals, without anybody asking for it. */
export interface Job {
  /** The same on every gateway of a database. */
  readonly name: string;
  readonly everyMs: number;
  /** On every gateway, or on the one that holds the job's lease. */
  readonly where: 'every' | 'one';
  readonly run: () => Promise<void>;
}

export interface Jobs {
  /** Ends the clock and waits for what is running. */
  stop(): Promise<void>;
}

export interface JobsOptions {
  readonly log: Log;
  /** Takes or renews the lease of a job. @returns false while another gateway holds it */
  readonly takeLease: (name: string) => Promise<boolean>;
}

/** Runs each job at its interval; one that is still running is not started again, one that fails is logged. */
export function startJobs(jobs: readonly Job[], { log, takeLease }: JobsOptions): Jobs {
  const running = new Map<string, Promise<void>>();
  const run = async ({ name, where, run: work }: Job): Promise<void> => {
    try {
      if (where === 'every' || (await takeLease(name))) await work();
    } catch (error) {
      log.warn({ err: error, job: name }, 'a job failed; it runs again at its next interval');
    }
  };
  const tick = (job: Job): void => {
    const { name, where } = job;
    if (!running.has(name)) {
      const ended = run(job).finally(() => running.delete(name));
      running.set(name, ended);
    } else if (where === 'one') {
      // A long run keeps its lease. A lease that was not renewed here shows at the next run.
      takeLease(name).catch(() => undefined);
    }
  };
  const timers = jobs.map((job) => setInterval(() => tick(job), job.everyMs).unref());
  return {
    async stop() {
      for (const timer of timers) clearInterval(timer);
      await Promise.all(running.values());
    },
  };
}
