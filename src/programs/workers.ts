import cluster, { type Worker } from 'node:cluster';
import type { WorkerSlot } from '#app/app.ts';
import type { Log } from '#base/log.ts';

/**
 * Several gateways on one machine, each in its own process, which accept connections on one port. This process starts
 * the workers, and replaces a worker that died.
 */
export interface Workers {
  /** Rejects when a gateway ends before all are ready; that gateway has reported why. */
  start(): Promise<Started>;
  /** Makes one gateway read the engine files again; that gateway notifies the others. */
  reload(): void;
  /** Stops all gateways and waits for their end; once `forceStop` aborts, they do not wait for running requests. */
  stop(forceStop: AbortSignal): Promise<void>;
  /** Calls back when too many gateways died within a minute; no more are started then. */
  onGivenUp(listener: () => void): void;
}

/** Report of a gateway that is ready. */
export interface Started {
  readonly url: string;
  /** Secret of the first key; only of a first start. */
  readonly secret: string | null;
  /** Token of the link that signs the platform administrator in; only of a first start. */
  readonly welcome: string | null;
}

/** The slot of a gateway, and the database and the gateway folder that all of them use. */
export interface AssignedSlot extends WorkerSlot {
  readonly databaseUrl: string;
  readonly gatewayDir: string;
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
/** Exit code of a gateway that cannot start while a store is unavailable: EX_TEMPFAIL of BSD's sysexits. */
export const storeUnavailableExitCode = 75;

export interface WorkersOptions {
  readonly count: number;
  readonly databaseUrl: string;
  readonly gatewayDir: string;
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
    // The first gateway starts before the others: it adopts what an earlier start left, and creates the first key.
    const first = await this.#fork({ number: 0, sharing: 'first' });
    const others = Array.from({ length: this.#options.count - 1 }, (_, index) => index + 1);
    await Promise.all(others.map((number) => this.#fork({ number, sharing: 'joining' })));
    this.#started = true;
    return first;
  }

  reload(): void {
    const [worker] = this.#slots.keys();
    if (worker !== undefined) send(worker, { kind: 'reload' });
  }

  async stop(forceStop: AbortSignal): Promise<void> {
    this.#stopping = true;
    const onForceStop = (): void => this.#sendAll({ kind: 'forceStop' });
    if (forceStop.aborted) onForceStop();
    else forceStop.addEventListener('abort', onForceStop, { once: true });
    this.#sendAll({ kind: 'stop' });
    const running = [...this.#slots.keys()];
    await Promise.all(running.map((worker) => new Promise((resolve) => worker.once('exit', resolve))));
    forceStop.removeEventListener('abort', onForceStop);
  }

  onGivenUp(listener: () => void): void {
    this.#givenUp = listener;
  }

  #sendAll(message: ToWorker): void {
    for (const worker of this.#slots.keys()) send(worker, message);
  }

  #fork(slot: WorkerSlot): Promise<Started> {
    const { databaseUrl, gatewayDir } = this.#options;
    const worker = cluster.fork();
    this.#slots.set(worker, slot.number);
    return new Promise((resolve, reject) => {
      worker.once('online', () => send(worker, { kind: 'slot', slot: { ...slot, databaseUrl, gatewayDir } }));
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
    if (how.code === storeUnavailableExitCode) {
      // Not counted as a death: the running gateways survive the outage, so the process does not give up.
      log.warn(
        { worker: number, pauseMs: storePauseMs },
        'a gateway cannot start while PostgreSQL or Redis is unavailable; it is restarted after a pause',
      );
      this.#forkLater(number, storePauseMs);
      return;
    }
    const nowMs = performance.now();
    this.#deathsAtMs = [...this.#deathsAtMs.filter((atMs) => nowMs - atMs < deathsWindowMs), nowMs];
    const deaths = this.#deathsAtMs.length;
    if (deaths > deathsMax) {
      log.fatal(
        { deaths },
        'too many gateways crashed within a minute; all are stopped. The log lines of the crashes name the cause',
      );
      this.#givenUp();
      return;
    }
    const pauseMs = Math.min(pauseMaxMs, firstPauseMs * 2 ** (deaths - 1));
    log.error({ worker: number, ...how, pauseMs }, 'a gateway crashed; a new one starts after a pause');
    this.#forkLater(number, pauseMs);
  }

  #forkLater(number: number, pauseMs: number): void {
    setTimeout(() => {
      // A gateway that ends before it is ready calls `#replace` again.
      if (!this.#stopping) this.#fork({ number, sharing: 'joining' }).catch(() => undefined);
    }, pauseMs);
  }
}

/** Sends a message. A worker that is just ending does not get it, which does not matter. */
function send(worker: Worker, message: ToWorker): void {
  if (worker.isConnected()) worker.send(message, () => undefined);
}

/** Thrown when a gateway ends before it is ready. */
export class WorkerEndedError extends Error {
  constructor(code: number | null, signal: string | null) {
    super(`a gateway ended before it was ready (${signal ?? `exit code ${code}`})`);
  }
}

export const isWorker = cluster.isWorker;

/** Handlers of a worker for the messages of the process that started it. */
export interface WorkerSignals {
  readonly reload: () => void;
  readonly stop: () => void;
  readonly forceStop: () => void;
}

/** Waits for the slot of this gateway, and calls `signals` from then on. */
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
