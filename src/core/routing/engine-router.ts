import type { Fleet, Lease, ReplicaCandidate } from '#core/fleet/fleet.ts';
import { choose, type RouteChoice, type RouteRequest } from './choose-replica.ts';
import { LoadWatch, type WatchedReplica } from './load-watch.ts';
import { Outliers, type OutlierChange, type ReplicaOutcome } from './outliers.ts';
import { PrefixIndex } from './prefix-index.ts';
import { hashPrompt, type PromptText } from './prompt-blocks.ts';

/** What of a request says where it should go; both are asked for only where there is a choice. */
export interface Affinity {
  /** Null for requests whose prompts engines do not keep. */
  prompt(): PromptText | null;
  /** What the client wants kept together, another one for each organization; null when it sent nothing of the kind. */
  stickyKey(): string | null;
}

/** The replicas of engines, as a choice among them needs them. */
export type ReplicaFleet = Pick<Fleet, 'candidates' | 'tryAcquireReplica' | 'readReplicaLoad'>;

export interface EngineRouterOptions {
  readonly engineId: string;
  readonly fleet: ReplicaFleet;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  /** In [0, 1). */
  readonly random: () => number;
}

/**
 * 4 MB of prompts, about a million tokens: more than most replicas can cache. To think too much cached costs little,
 * since load bounds what that attracts; to forget what is cached costs reading it again.
 */
const blocksMax = 8192;
/** What was read by a replica that is not there is kept this long: it may only have missed a health check. */
const absentMsMax = 60_000;

const noBlocks = new Int32Array(0);

/** Chooses among the replicas of one engine, and remembers what that takes. */
export class EngineRouter {
  readonly #options: EngineRouterOptions;
  readonly #prefixes = new PrefixIndex(blocksMax);
  readonly #outliers = new Outliers();
  readonly #loads: LoadWatch;
  /** When each replica was last there. */
  readonly #seenMs = new Map<string, number>();
  readonly #trials = new WeakSet<Lease>();

  constructor(options: EngineRouterOptions) {
    this.#options = options;
    const { engineId, fleet, nowMs } = options;
    this.#loads = new LoadWatch({
      replicas: () => fleet.candidates(engineId).map(({ replica, leases }) => ({ id: replica.id, leases })),
      readLoad: (replicaId) => fleet.readReplicaLoad(replicaId),
      onRound: (replicas, atMs) => this.#sweep(replicas, atMs),
      nowMs,
    });
  }

  /**
   * @param candidates of the engine, two or more
   * @param exclude ids of replicas that were tried for this request
   * @returns null when none is left
   */
  acquire(
    candidates: readonly ReplicaCandidate[],
    affinity: Affinity | null,
    exclude: ReadonlySet<string> | undefined,
  ): Lease | null {
    const nowMs = this.#options.nowMs();
    this.#loads.use(nowMs);
    let open: readonly WatchedReplica[] = candidates
      .filter(({ replica }) => exclude?.has(replica.id) !== true)
      .map(({ replica, leases }) => ({ id: replica.id, leases }));
    // Who has met one failure is not sent to try another replica.
    const trial = exclude === undefined && !this.#outliers.clean ? this.#outliers.due(open, nowMs) : null;
    const prompt = affinity?.prompt() ?? null;
    const chain = prompt === null ? noBlocks : hashPrompt(prompt);
    const onTrial = trial === null ? null : this.#try(trial.id, chain, nowMs);
    if (onTrial !== null) return onTrial;
    open = this.#outliers.admitted(open);
    const stickyKey = affinity?.stickyKey() ?? null;
    while (open.length > 0) {
      const choice = this.#choose(open, { chain, stickyKey }, nowMs);
      const lease = choice === null ? null : this.#take(choice.id, chain);
      if (lease !== null) return lease;
      open = open.filter(({ id }) => id !== choice?.id);
    }
    return null;
  }

  #try(replicaId: string, chain: Int32Array, nowMs: number): Lease | null {
    this.#outliers.tried(replicaId, nowMs);
    const lease = this.#take(replicaId, chain);
    if (lease !== null) this.#trials.add(lease);
    return lease;
  }

  /** @param replicaCount replicas that the engine has now */
  report(lease: Lease, outcome: ReplicaOutcome, replicaCount: number): OutlierChange {
    const trial = this.#trials.has(lease);
    return this.#outliers.report({ replicaId: lease.replica.id, outcome, trial, replicaCount }, this.#options.nowMs());
  }

  close(): void {
    this.#loads.close();
  }

  #choose(open: readonly WatchedReplica[], request: RouteRequest, nowMs: number): RouteChoice | null {
    const { chain } = request;
    const weighable = open.map(({ id, leases }) => ({
      id,
      leases,
      load: this.#loads.sample(id, nowMs),
      matchedBlocks: chain.length === 0 ? 0 : this.#prefixes.match(id, chain),
    }));
    return choose(weighable, request, this.#options.random);
  }

  #take(replicaId: string, chain: Int32Array): Lease | null {
    const lease = this.#options.fleet.tryAcquireReplica(replicaId);
    if (lease !== null && chain.length > 0) this.#prefixes.record(replicaId, chain);
    return lease;
  }

  #sweep(replicas: readonly { readonly id: string }[], nowMs: number): void {
    for (const { id } of replicas) this.#seenMs.set(id, nowMs);
    for (const [id, seenMs] of this.#seenMs) {
      if (nowMs - seenMs <= absentMsMax) continue;
      this.#seenMs.delete(id);
      this.#prefixes.forget(id);
      this.#outliers.forget(id);
    }
  }
}
