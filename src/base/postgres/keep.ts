import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '#base/log.ts';
import type { RunningServer } from './launch.ts';

export interface KeepOptions {
  readonly server: RunningServer;
  /** Tries once to start the server; what it returns after `signal` has aborted need not be ready. */
  readonly start: (signal: AbortSignal) => Promise<RunningServer>;
  readonly log: Log;
}

const secondPauseMs = 200;
const pauseMaxMs = 10_000;
/** A server that ran for longer did not end because of how it was started. */
const steadyMs = 60_000;

/** @param starts since the server last ran steadily @returns milliseconds until the next one */
export function pauseBeforeStartMs(starts: number): number {
  return starts === 0 ? 0 : Math.min(pauseMaxMs, secondPauseMs * 2 ** (starts - 1));
}

/**
 * Starts a server again whenever it ends: at once, then after pauses that grow, without an end.
 * @returns stops the restarts, and then the server; a start that is under way is cut short. It rejects when the server
 * does not stop
 */
export function keepRunning(options: KeepOptions): () => Promise<void> {
  const keeper = new Keeper(options);
  const kept = keeper.run();
  let stopped: Promise<void> | null = null;
  return () => (stopped ??= keeper.stop(kept));
}

class Keeper {
  readonly #options: KeepOptions;
  readonly #stopRequested = new AbortController();
  #starts = 0;

  constructor(options: KeepOptions) {
    this.#options = options;
  }

  /** @returns the server that must be stopped, if there is one */
  async run(): Promise<RunningServer | null> {
    const { signal } = this.#stopRequested;
    const aborted = new Promise<null>((resolve) => signal.addEventListener('abort', () => resolve(null)));
    let server: RunningServer | null = this.#options.server;
    while (server !== null) {
      const sinceMs = performance.now();
      const how: string | null = signal.aborted ? null : await Promise.race([server.ended, aborted]);
      if (how === null) return server;
      this.#options.log.error({ how }, 'PostgreSQL exited unexpectedly; restarting it');
      if (performance.now() - sinceMs >= steadyMs) this.#starts = 0;
      server = await this.#bringBack();
    }
    return null;
  }

  async stop(kept: Promise<RunningServer | null>): Promise<void> {
    this.#stopRequested.abort();
    const server = await kept;
    await server?.stop();
  }

  async #bringBack(): Promise<RunningServer | null> {
    const { start, log } = this.#options;
    const { signal } = this.#stopRequested;
    const sinceMs = performance.now();
    for (let tries = 1; ; tries += 1) {
      const pauseMs = pauseBeforeStartMs(this.#starts);
      this.#starts += 1;
      try {
        await sleep(pauseMs, undefined, { signal });
        const server = await start(signal);
        const awayMs = Math.round(performance.now() - sinceMs);
        if (!signal.aborted) log.info({ pid: server.pid, port: server.port, tries, awayMs }, 'PostgreSQL runs again');
        return server;
      } catch (error) {
        if (signal.aborted) return null;
        if (tries === 1) log.error({ err: error }, 'PostgreSQL did not restart; retrying');
      }
    }
  }
}
