import cluster, { type Worker } from 'node:cluster';
import type { WorkerSlot } from '#app/app.ts';
import type { Log } from '#base/log.ts';

/**
 * Several gateways on one machine: this process brings up what they share and starts them, each a process of its own
 * that takes connections of the one port, and starts another where one died.
 */
export interface Workers {
  /** Rejects when a gateway ends before all are ready; why has been said by the gateway itself. */
  start(): Promise<Started>;
  /** Has the engine files read again, by one gateway, which tells the others. */
  reload(): void;
  /** All end, in order, and this waits for it; once `forceStop` aborts, they do not wait for running requests. */
  stop(forceStop: AbortSignal): Promise<void>;
  /** Called when too many of them died: there is no use in starting more. */
  onGivenUp(listener: () => void): void;
}

/** What the first gateway of all says when it is ready. */
export interface Started {
  readonly url: string;
  /** The first key, of a first start alone. */
  readonly secret: string | null;
}

/** A gateway's place, and the database that all of them use. */
export interface AssignedSlot extends WorkerSlot {
  readonly databaseUrl: string;
}

type ToWorker =
  | { readonly kind: 'slot'; readonly slot: AssignedSlot }
  | { readonly kind: 'reload' | 'stop' | 'forceStop' };
type FromWorker = { readonly kind: 'ready' } & Started;

const firstPauseMs = 200;
const pauseMaxMs = 10_000;
const deathsWindowMs = 60_000;
const deathsMax = 10;
const storePauseMs = 2000;
/** Of a gateway that cannot begin while a store is away: EX_TEMPFAIL of BSD's sysexits. */
export const storeAwayExitCode = 75;

export interface WorkersOptions {
  readonly count: number;
  readonly databaseUrl: string;
  readonly log: Log;
}

export function createWorkers(options: WorkersOptions): Workers {
  return new ClusterWorkers(options);
}

class ClusterWorkers implements Workers {
  readonly #options: WorkersOptions;
  readonly #slots = new Map<Worker, number>();
  #deathsAtMs: number[] = [];
  #stopping = false;
  #started = false;
  #givenUp: () => void = () => undefined;

  constructor(options: WorkersOptions) {
    this.#options = options;
  }

  async start(): Promise<Started> {
    // The first one alone: it takes over what an earlier start left, and makes the first key.
    const first = await this.#fork({ number: 0, sharing: 'first' });
    const others = Array.from({ length: this.#options.count - 1 }, (_, index) => index + 1);
    await Promise.all(others.map((number) => this.#fork({ number, sharing: 'joining' })));
    this.#started = true;
    return first;
  }

  reload(): void {
    const [worker] = this.#slots.keys();
    if (worker !== undefined) tell(worker, { kind: 'reload' });
  }

  async stop(forceStop: AbortSignal): Promise<void> {
    this.#stopping = true;
    const onForceStop = (): void => this.#tellAll({ kind: 'forceStop' });
    if (forceStop.aborted) onForceStop();
    else forceStop.addEventListener('abort', onForceStop, { once: true });
    this.#tellAll({ kind: 'stop' });
    const running = [...this.#slots.keys()];
    await Promise.all(running.map((worker) => new Promise((resolve) => worker.once('exit', resolve))));
    forceStop.removeEventListener('abort', onForceStop);
  }

  onGivenUp(listener: () => void): void {
    this.#givenUp = listener;
  }

  #tellAll(message: ToWorker): void {
    for (const worker of this.#slots.keys()) tell(worker, message);
  }

  #fork(slot: WorkerSlot): Promise<Started> {
    const { databaseUrl } = this.#options;
    const worker = cluster.fork();
    this.#slots.set(worker, slot.number);
    return new Promise((resolve, reject) => {
      worker.once('online', () => tell(worker, { kind: 'slot', slot: { ...slot, databaseUrl } }));
      worker.on('message', ({ kind, ...started }: FromWorker) => {
        if (kind === 'ready') resolve(started);
      });
      worker.once('exit', (code: number | null, signal: string | null) => {
        this.#slots.delete(worker);
        reject(new WorkerEndedError(code, signal));
        if (!this.#stopping && this.#started) this.#replace(slot.number, { code, signal });
      });
    });
  }

  #replace(number: number, how: { readonly code: number | null; readonly signal: string | null }): void {
    const { log } = this.#options;
    if (how.code === storeAwayExitCode) {
      // Nothing is wrong with it, and those that run come through this as well: they are not ended for its sake.
      log.warn({ worker: number, pauseMs: storePauseMs }, 'a gateway waits for PostgreSQL and Redis to begin');
      this.#forkLater(number, storePauseMs);
      return;
    }
    const nowMs = performance.now();
    this.#deathsAtMs = [...this.#deathsAtMs.filter((atMs) => nowMs - atMs < deathsWindowMs), nowMs];
    const deaths = this.#deathsAtMs.length;
    if (deaths > deathsMax) {
      log.fatal({ deaths }, 'gateways die again and again; all are stopped');
      this.#givenUp();
      return;
    }
    const pauseMs = Math.min(pauseMaxMs, firstPauseMs * 2 ** (deaths - 1));
    log.error({ worker: number, ...how, pauseMs }, 'a gateway ended and is replaced');
    this.#forkLater(number, pauseMs);
  }

  #forkLater(number: number, pauseMs: number): void {
    setTimeout(() => {
      // Its end before it is ready comes here again.
      if (!this.#stopping) this.#fork({ number, sharing: 'joining' }).catch(() => undefined);
    }, pauseMs);
  }
}

/** One that is just ending hears nothing any more, which is no news. */
function tell(worker: Worker, message: ToWorker): void {
  if (worker.isConnected()) worker.send(message, () => undefined);
}

/** A gateway ended before it was ready. */
export class WorkerEndedError extends Error {
  constructor(code: number | null, signal: string | null) {
    super(`a gateway ended before it was ready (${signal ?? `exit code ${code}`})`);
  }
}

export const isWorker = cluster.isWorker;

/** What a gateway that is one of several hears from who started it. */
export interface WorkerSignals {
  readonly reload: () => void;
  readonly stop: () => void;
  readonly forceStop: () => void;
}

/** Waits for the place that this gateway is given, and hears what is wished of it from then on. */
export function takeSlot(signals: WorkerSignals): Promise<AssignedSlot> {
  return new Promise((resolve) => {
    process.on('message', (message: ToWorker) => {
      if (message.kind === 'slot') resolve(message.slot);
      else signals[message.kind]();
    });
  });
}

export function tellReady(started: Started): void {
  const message: FromWorker = { kind: 'ready', ...started };
  process.send?.(message);
}
