import type { LoadReport } from '#core/fleet/fleet.ts';
import type { LoadSample } from './choose-replica.ts';

/** Polls the load of an engine's replicas, twice a second and only while requests choose among them. */

export interface WatchedReplica {
  readonly id: string;
  readonly leases: number;
}

export interface LoadWatchOptions {
  /** Returns the replicas to poll; empty if there is no choice. */
  readonly replicas: () => readonly WatchedReplica[];
  readonly readLoad: (replicaId: string) => Promise<LoadReport>;
  /** Called before each round with the present replicas. */
  readonly onRound: (replicas: readonly WatchedReplica[], nowMs: number) => void;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  readonly everyMs?: number;
}

const everyMsDefault = 500;
/** After this time without a choice, polling stops; the next choice starts with this gateway's own leases. */
const idleMs = 5_000;
/** Age up to which a report is more useful than this gateway's own leases. */
const sampleMsMax = 3_000;
/** Time after which an engine without load metrics is polled again: it may have been restarted. */
const noneMs = 30_000;

interface Watched {
  sample: LoadSample | null;
  asking: boolean;
  notBeforeMs: number;
}

export class LoadWatch {
  readonly #options: LoadWatchOptions;
  readonly #watched = new Map<string, Watched>();
  #timer: NodeJS.Timeout | null = null;
  #usedMs = -Infinity;
  #closed = false;

  constructor(options: LoadWatchOptions) {
    this.#options = options;
  }

  /** Called for each choice; keeps polling active for a while. */
  use(nowMs: number): void {
    this.#usedMs = nowMs;
    if (this.#timer === null && !this.#closed) this.#round();
  }

  sample(replicaId: string, nowMs: number): LoadSample | null {
    const sample = this.#watched.get(replicaId)?.sample ?? null;
    return sample !== null && nowMs - sample.atMs <= sampleMsMax ? sample : null;
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #round(): void {
    this.#timer = null;
    const { replicas, onRound, nowMs, everyMs = everyMsDefault } = this.#options;
    const now = nowMs();
    if (this.#closed || now - this.#usedMs > idleMs) return;
    const present = replicas();
    const ids = new Set(present.map(({ id }) => id));
    for (const id of this.#watched.keys()) if (!ids.has(id)) this.#watched.delete(id);
    onRound(present, now);
    for (const { id } of present) this.#ask(id, now);
    this.#timer = setTimeout(() => this.#round(), everyMs);
    this.#timer.unref();
  }

  #ask(id: string, nowMs: number): void {
    const watched = this.#watched.get(id) ?? { sample: null, asking: false, notBeforeMs: 0 };
    this.#watched.set(id, watched);
    if (watched.asking || nowMs < watched.notBeforeMs) return;
    watched.asking = true;
    const leasesBefore = this.#leases(id);
    const learn = (report: LoadReport): void => {
      watched.asking = false;
      if (report === 'unknown') return;
      const atMs = this.#options.nowMs();
      if (report === 'none') {
        watched.sample = null;
        watched.notBeforeMs = atMs + noneMs;
        return;
      }
      // It is unknown whether the engine counted requests that started or ended during the query: rather too much load
      // than too little.
      watched.sample = { ...report, atMs, leasesThen: Math.min(leasesBefore, this.#leases(id)) };
    };
    this.#options.readLoad(id).then(learn, () => learn('unknown'));
  }

  #leases(id: string): number {
    return this.#options.replicas().find((replica) => replica.id === id)?.leases ?? 0;
  }
}
