import type { Fleet, Lease, ReplicaCandidate } from '#core/fleet/fleet.ts';
import { chooseByWeight, differInWeight, type WeightedReplica } from './choose-by-weight.ts';
import { choose, type RouteChoice, type RouteRequest } from './choose-replica.ts';
import { LoadWatch } from './load-watch.ts';
import { Outliers, type OutlierChange, type ReplicaOutcome } from './outliers.ts';
import { PrefixIndex } from './prefix-index.ts';
import { hashPrompt, type PromptText } from './prompt-blocks.ts';

/** Properties of a request for choosing a replica; both are read only if there is a choice. */
export interface Affinity {
  /** Returns null for requests whose prompts engines do not cache. */
  prompt(): PromptText | null;
  /**
   * Key of requests that the client wants on the same replica, different per organization; null if the client sent
   * none.
   */
  stickyKey(): string | null;
}

/** The part of the fleet that a choice among replicas needs. */
export type ReplicaFleet = Pick<Fleet, 'candidates' | 'tryAcquireReplica' | 'readReplicaLoad'>;

export interface EngineRouterOptions {
  readonly engineId: string;
  readonly fleet: ReplicaFleet;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  /** Returns numbers in [0, 1). */
  readonly random: () => number;
}

/**
 * Blocks remembered per replica: 4 MB of prompts, about a million tokens, more than most replicas can cache. Assuming
 * too much is cached costs little, because the load bounds the attracted requests; forgetting a cached prompt costs
 * reading it again.
 */
const blocksMax = 8192;
/** Time that the prompts of a missing replica are remembered: the replica may only have missed a health check. */
const absentMsMax = 60_000;

/** A replica that may get the request. */
interface OpenReplica extends WeightedReplica {
  readonly leases: number;
}

const noBlocks = new Int32Array(0);

/** Chooses among the replicas of one engine, and keeps the state for the choice. */
export class EngineRouter {
  readonly #options: EngineRouterOptions;
  readonly #prefixes = new PrefixIndex(blocksMax);
  readonly #outliers = new Outliers();
  readonly #loads: LoadWatch;
  /** Monotonic time when each replica was last present. */
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
   * @param candidates two or more replicas of the engine
   * @param exclude ids of replicas that were tried for this request
   * @returns null if no replica is left
   */
  acquire(
    candidates: readonly ReplicaCandidate[],
    affinity: Affinity | null,
    exclude: ReadonlySet<string> | undefined,
  ): Lease | null {
    const nowMs = this.#options.nowMs();
    this.#loads.use(nowMs);
    let open: readonly OpenReplica[] = candidates
      .filter(({ replica }) => exclude?.has(replica.id) !== true)
      .map(({ replica, leases }) => ({ id: replica.id, leases, weight: replica.deployment?.weight ?? 1 }));
    // A request that has already met one failure is not used to try an ejected replica.
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

  /** @param replicaCount number of replicas that the engine has now */
  report(lease: Lease, outcome: ReplicaOutcome, replicaCount: number): OutlierChange {
    const trial = this.#trials.has(lease);
    return this.#outliers.report({ replicaId: lease.replica.id, outcome, trial, replicaCount }, this.#options.nowMs());
  }

  close(): void {
    this.#loads.close();
  }

  #choose(open: readonly OpenReplica[], request: RouteRequest, nowMs: number): RouteChoice | null {
    const { chain, stickyKey } = request;
    if (differInWeight(open)) return chooseByWeight(open, stickyKey, this.#options.random);
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
