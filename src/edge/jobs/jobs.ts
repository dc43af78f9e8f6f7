import type { Log } from '#base/log.ts';

/** Work that is done at intervals, without anybody asking for it. */
export interface Job {
  readonly name: string;
  readonly everyMs: number;
  readonly run: () => Promise<void>;
}

export interface Jobs {
  /** Ends the clock and waits for what is running. */
  stop(): Promise<void>;
}

/** Runs each job at its interval. A job that still runs is not started again; one that fails is logged. */
export function startJobs(jobs: readonly Job[], log: Log): Jobs {
  const running = new Map<string, Promise<void>>();
  const timers = jobs.map((job) =>
    setInterval(() => {
      if (running.has(job.name)) return;
      const run = job
        .run()
        .catch((error: unknown) =>
          log.warn({ err: error, job: job.name }, 'a job failed; it runs again at its next interval'),
        )
        .finally(() => running.delete(job.name));
      running.set(job.name, run);
    }, job.everyMs).unref(),
  );
  return {
    async stop() {
      for (const timer of timers) clearInterval(timer);
      await Promise.all(running.values());
    },
  };
}
