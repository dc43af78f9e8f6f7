import type { Log } from '#base/log.ts';

export { createReplicaCarrier, type ReplicaCarrier } from './replica-carrier.ts';

/** Work that runs at intervals, without a request. */
export interface Job {
  /** Identical on every gateway of a database. */
  readonly name: string;
  readonly everyMs: number;
  /** Runs on every gateway, or only on the gateway that holds the job's lease. */
  readonly where: 'every' | 'one';
  readonly run: () => Promise<void>;
  /**
   * Forgets the figures that `run` leaves in this process. Called at the job's interval while another gateway holds the
   * lease, whose figures are current. Only for jobs of one gateway.
   */
  readonly forget?: () => void;
}

export interface Jobs {
  /** Stops the timers, and waits for running jobs. */
  stop(): Promise<void>;
}

export interface JobsOptions {
  readonly log: Log;
  /** Takes or renews the lease of a job. @returns false if another gateway holds it */
  readonly takeLease: (name: string) => Promise<boolean>;
}

/** Runs each job at its interval. A job that is still running is not started again; a job that fails is logged. */
export function startJobs(jobs: readonly Job[], { log, takeLease }: JobsOptions): Jobs {
  const running = new Map<string, Promise<void>>();
  const run = async ({ name, where, run: work, forget }: Job): Promise<void> => {
    try {
      if (where === 'every' || (await takeLease(name))) await work();
      else forget?.();
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
      // Renews the lease during a long run. If the renewal fails, the next run will notice.
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
