import type { Log } from '#base/log.ts';
import type { LogOptions } from '#core/fleet/drivers/drivers.ts';

export interface LogLine {
  /** null: the line is of the last replica that ended. */
  readonly replicaId: string | null;
  readonly line: string;
}

/** The parts of a fleet that reading logs needs. */
interface LoggedFleet {
  list(): readonly { readonly engineId: string; readonly replicas: readonly { readonly id: string }[] }[];
  /** Yields lines of one replica; of the last one that ended if the id is null and none runs. */
  logs(engineId: string, replicaId: string | null, options: LogOptions): AsyncIterable<string>;
}

export interface LogSource {
  readonly fleet: LoggedFleet;
  readonly log: Log;
}

interface LogTarget {
  readonly engineId: string;
  readonly replicaId: string | null;
}

/**
 * Yields lines of one replica. If `replicaId` is null, yields those of all replicas one after the other, or, if
 * followed, of all at once with later replicas.
 */
export function readLogs(source: LogSource, target: LogTarget, request: LogOptions): AsyncIterable<LogLine> {
  const { engineId, replicaId } = target;
  if (replicaId !== null) return linesOf(source, target, request);
  return request.follow ? new FollowedLogs(source, engineId, request).lines() : lastLines(source, engineId, request);
}

async function* linesOf({ fleet }: LogSource, target: LogTarget, request: LogOptions): AsyncGenerator<LogLine> {
  const { engineId, replicaId } = target;
  for await (const line of fleet.logs(engineId, replicaId, request)) yield { replicaId, line };
}

function replicasOf({ fleet }: LogSource, engineId: string): string[] {
  const engine = fleet.list().find((one) => one.engineId === engineId);
  return (engine?.replicas ?? []).map(({ id }) => id);
}

async function* lastLines(source: LogSource, engineId: string, request: LogOptions): AsyncGenerator<LogLine> {
  const ids: (string | null)[] = replicasOf(source, engineId);
  // No replica runs: reads the last one that ended.
  if (ids.length === 0) ids.push(null);
  for (const replicaId of ids) yield* linesOf(source, { engineId, replicaId }, request);
}

const queueMax = 100;
const pollEveryMs = 1000;

/** Follows the lines of all replicas of an engine until the reader stops. */
class FollowedLogs {
  readonly #source: LogSource;
  readonly #engineId: string;
  readonly #request: LogOptions;
  readonly #known = new Set<string>();
  readonly #queue: LogLine[] = [];
  #changed = Promise.withResolvers<void>();

  constructor(source: LogSource, engineId: string, request: LogOptions) {
    this.#source = source;
    this.#engineId = engineId;
    this.#request = request;
  }

  async *lines(): AsyncGenerator<LogLine> {
    const { signal } = this.#request;
    const wake = (): void => this.#wake();
    signal.addEventListener('abort', wake, { once: true });
    const timer = setInterval(wake, pollEveryMs).unref();
    try {
      while (!signal.aborted) {
        this.#open();
        const changed = this.#changed.promise;
        const line = this.#queue.shift();
        if (line === undefined) await changed;
        else {
          this.#wake();
          yield line;
        }
      }
    } finally {
      clearInterval(timer);
      signal.removeEventListener('abort', wake);
    }
  }

  #open(): void {
    for (const id of replicasOf(this.#source, this.#engineId).filter((one) => !this.#known.has(one))) {
      this.#known.add(id);
      this.#read(id).catch((error: unknown) => {
        this.#source.log.warn(
          { err: error, engineId: this.#engineId, replicaId: id },
          'the log of a replica can no longer be followed; readers of the engine log get no further lines of this replica',
        );
      });
    }
  }

  async #read(replicaId: string): Promise<void> {
    const { signal } = this.#request;
    for await (const line of linesOf(this.#source, { engineId: this.#engineId, replicaId }, this.#request)) {
      while (this.#queue.length >= queueMax && !signal.aborted) await this.#changed.promise;
      if (signal.aborted) return;
      this.#queue.push(line);
      this.#wake();
    }
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
